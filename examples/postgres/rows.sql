-- SPDX-License-Identifier: Apache-2.0
-- The rows of all tables as events, one JSON line each, under the snapshot :snapshot.
--
-- Each row becomes the line that wal2json's first sight of it would have led to: the same key, the same
-- document, to the byte. Numbers and booleans are JSON's own, bytea is hexadecimal, the rest is text as
-- PostgreSQL prints it; NaN and infinities are null. A row without a primary key is told by its place:
-- @LSN.NUMBER. The query writes one COPY statement a table; \gexec runs them.
-- Variables: snapshot, lsn, source, tables (names with their schema, or empty for all).
SET search_path = '';
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET TRANSACTION SNAPSHOT :'snapshot';
WITH tables AS (
	SELECT c.oid, n.nspname AS schema, c.relname AS own,
		CASE n.nspname WHEN 'public' THEN ''
			ELSE replace(replace(n.nspname, '%', '%25'), '.', '%2E') || '.' END ||
		replace(replace(c.relname, '%', '%25'), '.', '%2E') AS collection
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind = 'r' AND c.relpersistence = 'p'
		AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		AND (:'tables' = '' OR c.oid IN (SELECT t::regclass FROM unnest(string_to_array(:'tables', ' ')) t))
), columns AS (
	SELECT a.attrelid, a.attnum, coalesce(a.attnum = ANY (i.indkey), false) AS in_key,
		to_json(a.attname::text)::text || ':' AS label,
		CASE
		WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'float4'::regtype,
				'float8'::regtype, 'numeric'::regtype) THEN
			format('CASE WHEN %1$I IS NULL OR %1$I::text IN (''NaN'', ''Infinity'', ''-Infinity'') THEN ''null''
				ELSE %1$I::text END', a.attname)
		WHEN a.atttypid = 'bool'::regtype THEN
			format('CASE %I WHEN true THEN ''true'' WHEN false THEN ''false'' ELSE ''null'' END', a.attname)
		WHEN a.atttypid = 'bytea'::regtype THEN
			format('coalesce(to_json(encode(%I, ''hex''))::text, ''null'')', a.attname)
		ELSE
			format('CASE WHEN %1$I IS NOT DISTINCT FROM NULL THEN ''null''
				ELSE to_json(format(''%%s'', %1$I))::text END', a.attname)
		END AS token,
		-- a key of one column is the text itself, without JSON's quotes
		CASE WHEN a.atttypid = 'bytea'::regtype THEN format('encode(%I, ''hex'')', a.attname)
		WHEN a.atttypid = 'bool'::regtype THEN format('CASE WHEN %I THEN ''true'' ELSE ''false'' END', a.attname)
		ELSE format('format(''%%s'', %I)', a.attname) END AS plain
	FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
	WHERE a.attnum > 0 AND NOT a.attisdropped
), rows AS (
	SELECT t.schema, t.own, t.collection,
		string_agg(format('%L || %s', c.label, c.token), ', ' ORDER BY c.attnum) AS document,
		string_agg(c.token, ', ' ORDER BY c.attnum) FILTER (WHERE c.in_key) AS key_tokens,
		max(c.plain) FILTER (WHERE c.in_key) AS key_plain,
		count(*) FILTER (WHERE c.in_key) AS key_columns
	FROM tables t JOIN columns c ON c.attrelid = t.oid
	GROUP BY t.schema, t.own, t.collection
)
SELECT format('COPY (SELECT ''{"type":"PUT","key":'' || to_json(%L || %s)::text || '',"value":{'' ||
		array_to_string(ARRAY[%s], '','') || %L || %s || %L
		FROM %I.%I) TO STDOUT (FORMAT csv, QUOTE E''\x01'', DELIMITER E''\x02'')',
	collection || ':',
	CASE key_columns
	WHEN 0 THEN format('%L || row_number() OVER ()', '@' || :'lsn' || '.')
	WHEN 1 THEN key_plain
	ELSE format('''['' || array_to_string(ARRAY[%s], '','') || '']''', key_tokens) END,
	document,
	format('},"timestamp_ms":%s,"metadata":{"table":%s,"schema":%s', floor(extract(epoch FROM now()) * 1000),
		to_json(collection), to_json(schema)),
	CASE key_columns
	WHEN 0 THEN ''''''
	WHEN 1 THEN format('%L || %s', ',"pk":', key_tokens)
	ELSE format('%L || array_to_string(ARRAY[%s], '','') || '']''', ',"pk":[', key_tokens) END,
	format(',"snapshot":true,"lsn":%s,"source":%s}}', to_json(:'lsn'::text), to_json(:'source'::text)),
	schema, own)
FROM rows ORDER BY schema, own
\gexec
COMMIT;
