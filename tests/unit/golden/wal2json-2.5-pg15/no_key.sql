create table plain (x int, y text);
create table full_row (x int, y text);
alter table full_row replica identity full;
create table nothing (id int primary key, v text);
alter table nothing replica identity nothing;
-- slot
insert into plain values (1, 'a'), (2, 'b');
update plain set y = 'c' where x = 1;
delete from plain where x = 2;
insert into full_row values (3, 'full');
update full_row set y = 'upd';
update full_row set y = null;
delete from full_row;
insert into nothing values (1, 'a');
update nothing set v = 'b';
delete from nothing;
