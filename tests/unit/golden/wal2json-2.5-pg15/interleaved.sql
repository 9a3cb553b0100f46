create extension dblink;
create table a (id int primary key, v text);
create function connect(name text) returns text language sql as $$
	select dblink_connect(name, format('host=%s port=%s dbname=%s user=postgres',
		current_setting('unix_socket_directories'), current_setting('port'),
		current_database())) $$;
-- slot
select connect('one'), connect('two');
select dblink_exec('one', 'begin');
select dblink_exec('one', $$ insert into a values (1, 'the first to begin') $$);
select dblink_exec('two', 'begin');
select dblink_exec('two', $$ insert into a values (2, 'the first to commit') $$);
select dblink_exec('two', 'commit');
select dblink_exec('one', $$ insert into a values (3, 'late') $$);
select dblink_exec('one', 'commit');
