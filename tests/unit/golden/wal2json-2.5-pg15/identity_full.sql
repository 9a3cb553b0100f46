create table full_key (id int primary key, t text, big text);
alter table full_key alter big set storage external;
alter table full_key replica identity full;
insert into full_key values (9, 'before the slot', repeat('y', 2100));
-- slot
update full_key set t = 'first seen as an update' where id = 9;
insert into full_key values (1, 'a', repeat('x', 2100));
update full_key set t = 'b' where id = 1;
update full_key set id = 2 where id = 1;
update full_key set t = null where id = 2;
delete from full_key;
