create table with_pk (id int primary key, u text not null unique, v text);
alter table with_pk replica identity using index with_pk_u_key;
-- slot
insert into with_pk values (1, 'u1', 'v');
delete from with_pk;
