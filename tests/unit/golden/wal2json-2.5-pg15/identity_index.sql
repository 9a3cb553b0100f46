create table no_pk (u text not null unique, v text);
alter table no_pk replica identity using index no_pk_u_key;
create table with_pk (id int primary key, u text not null unique, v text);
alter table with_pk replica identity using index with_pk_u_key;
create table all_but_toast (u text not null, k int not null, big text);
alter table all_but_toast alter big set storage external;
create unique index all_but_toast_i on all_but_toast (u, k);
alter table all_but_toast replica identity using index all_but_toast_i;
-- slot
insert into no_pk values ('u1', 'v');
update no_pk set v = 'w';
update no_pk set u = 'u2';
delete from no_pk;
insert into with_pk values (1, 'u1', 'v');
update with_pk set v = 'w';
update with_pk set u = 'u2';
insert into all_but_toast values ('u', 1, repeat('z', 2100));
update all_but_toast set k = 2;
delete from all_but_toast;
