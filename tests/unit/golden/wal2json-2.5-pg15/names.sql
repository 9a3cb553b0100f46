create schema "a.b";
create schema a;
create schema "S%x";
create table "a.b".c (id int primary key, v text);
create table a."b.c" (id int primary key, v text);
create table "a.b" (id int primary key, v text);
create table "S%x"."T""q" (id text primary key, v text);
create table "UPPER case" ("Key Col" text primary key, "é" int);
-- slot
insert into "a.b".c values (1, 'x');
insert into a."b.c" values (1, 'y');
insert into "a.b" values (1, 'z');
insert into "S%x"."T""q" values ('k"1', 'z');
insert into "UPPER case" values ('a/b:c%d', 1), ('', 2), ('.hidden', 3), (E'new\nline', 4);
update "UPPER case" set "é" = 10 where "Key Col" = '';
delete from "UPPER case" where "Key Col" = E'new\nline';
