create table raw (id int primary key, v text);
-- slot
insert into raw values (1, E'bad \xff\xfe bytes'), (2, E'latin \xe9');
update raw set v = E'\xc3' where id = 1;
