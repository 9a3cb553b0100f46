create table a (id int primary key, v text);
create table b (id int primary key, v text);
create table part (id int primary key, v text) partition by range (id);
create table part1 partition of part for values from (0) to (10);
-- slot
insert into a values (1, 'a');
insert into b values (9, 'z');
truncate a, b;
insert into a values (2, 'again');
insert into part values (1, 'p');
truncate part;
