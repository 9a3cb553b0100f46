create type mood as enum ('sad', 'happy');
create domain positive as int check (value > 0);
create type pair as (x int, y text);
create table types (id bigint primary key, b boolean, i2 smallint, n numeric, n2 numeric(10, 2),
	f4 real, f8 double precision, t text, c char(5), v varchar(10), ba bytea, j json, jb jsonb,
	ia int[], ta text[], d date, ts timestamp, tz timestamptz, iv interval, u uuid, ip inet,
	m mood, dm positive, pr pair, bt bit(4), mo money, r int4range, x xml, o oid,
	g int generated always as (i2 * 2) stored, "Weird "" Name\ 	" text);
-- slot
insert into types values (9223372036854775807, true, 7, 1.10, 5, 1.5, 1e300,
	E'a"b\\c\n\t\u0001é😀', 'ab', 'vv', '\xdeadbeef', '{"a": 1.10, "a":2}', '{"z":1.10,"b":null}',
	'{1,2,null}', '{a,"b c"}', '2024-01-02', '2024-01-02 03:04:05.678', '2024-01-02 03:04:05+00',
	'1 day 2 hours', '123e4567-e89b-12d3-a456-426614174000', '10.0.0.1/8', 'sad', 5, '(1,"q r")',
	'1010', '12.34', '[1,5)', '<a/>', 4000000000, default, 'weird');
insert into types (id, n, f4, f8, b) values (2, 'NaN', 'NaN', '-Infinity', false);
insert into types (id, n, f8) values (3, 12345678901234567890.12345678901234567890, '-0');
update types set t = 'new' where id = 2;
delete from types where id = 3;
alter table types drop column c;
update types set i2 = 8 where id = 2;
