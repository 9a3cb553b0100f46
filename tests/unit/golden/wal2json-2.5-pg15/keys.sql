create table multi (a int, b text, c date, v text, primary key (b, a));
create table kinds (b boolean, d date, n numeric(10, 2), primary key (b, d, n));
create table one (id int primary key, v text);
-- slot
begin;
insert into multi values (1, 'a', '2024-01-01', 'v');
update multi set v = 'w';
update multi set b = 'z';
update multi set a = 2, b = 'q', v = 'n';
delete from multi;
commit;
insert into kinds values (true, '2024-02-02', 1.10);
delete from kinds;
begin;
insert into one values (1, 'a'), (2, 'b');
update one set id = id + 10;
commit;
begin;
insert into one values (100, 'kept');
savepoint s;
insert into one values (101, 'rolled back');
rollback to s;
insert into one values (102, 'kept');
commit;
copy one from stdin;
7	c7
8	c8
9	c9
\.
