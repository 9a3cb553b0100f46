create table t (id int primary key);
-- slot
select pg_logical_emit_message(true, 'user:x', 'in a transaction "é"');
select pg_logical_emit_message(false, 'lone', 'alone');
begin;
insert into t values (1);
select pg_logical_emit_message(false, 'lone', 'its record ends where the commit begins');
commit;
begin;
select pg_logical_emit_message(false, 'lone', 'sent though rolled back');
select pg_logical_emit_message(true, 'lost', 'rolled back');
rollback;
select pg_logical_emit_message(true, '', 'no prefix');
select pg_logical_emit_message(true, 'bytes', '\x6100ff'::bytea);
create table ddl_is_an_empty_transaction (id int);
