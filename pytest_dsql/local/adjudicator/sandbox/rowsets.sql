-- Many rows that a statement writes at once, past the triggers of a table's view (`rowsets.py`): what those look at row by
-- row is looked at here for all of them. Whatever fails here is done again row by row, so it needs no words.

-- Where the views are of the rows that sandboxes have written: those of the overlays, with their places.
CREATE FUNCTION pytest_dsql_engine_sandbox.written_schema(schema name) RETURNS name LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('pytest_dsql_engine_w_' || pg_catalog.md5(schema::text))::name $$;

GRANT INSERT ON pytest_dsql_engine_sandbox.gone TO PUBLIC;

-- Counts rows that are deleted.
CREATE FUNCTION pytest_dsql_engine_sandbox.count_deleted(rows bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF pg_catalog.set_config_by_name('pytest_dsql_engine.written',
    (pytest_dsql_engine_limits.written() + 68719476736 * rows)::pg_catalog.text, true)::pg_catalog.int8 / 68719476736
    > pytest_dsql_engine_limits.transaction_rows()
  THEN
    PERFORM pytest_dsql_engine_limits.refuse_row();
  END IF;
  RETURN true;
END
$$;

-- The functions of a table: of rows that were written, and of rows that were deleted.
CREATE FUNCTION pytest_dsql_engine_sandbox.rowset_functions(relation oid, overlay_name text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  -- The written rows, each fetched from its place.
  rows text := format('pg_catalog.unnest(spots) AS s(id), LATERAL (SELECT * FROM %s AS o'
    ' WHERE o.ctid OPERATOR(pg_catalog.=) s.id OFFSET 0) AS n', overlay_name);
  twice text;
  orphans text;
  widows text;
BEGIN
  SELECT string_agg(format(' OR (SELECT pg_catalog.count(*) FROM (%s LIMIT 2) AS found) > 1',
    pytest_dsql_engine_sandbox.matching(relation, u.columns, 'n', u.columns, u.distinct_nulls)), '' ORDER BY u.index)
  INTO twice FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u WHERE u.columns IS NOT NULL AND u.predicate IS NULL;
  -- Many rows refer to few others.
  SELECT string_agg(pytest_dsql_engine_sandbox.fill($t$
  IF {due}EXISTS (SELECT FROM (
    SELECT DISTINCT {columns} FROM {rows}
  ) AS n WHERE ({given}) AND NOT EXISTS ({parents})) THEN
    RAISE foreign_key_violation;
  END IF;$t$,
    'due', pytest_dsql_engine_sandbox.due(f.con), 'rows', rows,
    'columns', pytest_dsql_engine_sandbox.each('n.{c}', f.columns, ', '),
    'given', pytest_dsql_engine_sandbox.each('n.{c} IS NOT NULL', f.columns, CASE (f.con).confmatchtype WHEN 'f' THEN ' OR ' ELSE ' AND ' END),
    'parents', pytest_dsql_engine_sandbox.matching((f.con).confrelid, f.parent_columns, 'n', f.columns)), '')
  INTO orphans FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) AS f;
  -- Which rows refer to them is found out first, with plans that suit the table, and then whether those are gone.
  SELECT string_agg(pytest_dsql_engine_sandbox.fill($t$
  IF {due}EXISTS (SELECT FROM (
    SELECT b.ctid AS id FROM {deleted} JOIN {table} AS b ON {of b} OFFSET 0
  ) AS c WHERE NOT EXISTS (SELECT FROM pytest_dsql_engine_sandbox.gone AS g
    WHERE g.relid OPERATOR(pg_catalog.=) {relid} AND g.id OPERATOR(pg_catalog.=) c.id)
  ) OR EXISTS (SELECT FROM {deleted} JOIN {child} AS o ON {of o}) THEN
    RAISE foreign_key_violation;
  END IF;$t$,
    'due', pytest_dsql_engine_sandbox.due(f.con), 'relid', (f.con).conrelid::text,
    'deleted', format('(SELECT r::%s AS was FROM pg_catalog.unnest(rows) AS r OFFSET 0) AS d', overlay_name),
    'table', format('%I.%I', n.nspname, c.relname),
    'child', format('%I.%I', pytest_dsql_engine_sandbox.overlay_schema(n.nspname), c.relname),
    'of b', pytest_dsql_engine_sandbox.each('b.{c} OPERATOR(pg_catalog.=) (d.was).{d}', f.columns, ' AND ', f.parent_columns),
    'of o', pytest_dsql_engine_sandbox.each('o.{c} OPERATOR(pg_catalog.=) (d.was).{d}', f.columns, ' AND ', f.parent_columns)), '')
  INTO widows FROM pytest_dsql_engine_sandbox.foreign_keys(relation, true) AS f
  JOIN pg_class AS c ON c.oid = (f.con).conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace;
  -- Both see what the statement that calls them has written. `others`: rows that it has written besides.
  RETURN pytest_dsql_engine_sandbox.fill($t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.rows_written_{relid}(spots pg_catalog.tid[], others pg_catalog.int8)
RETURNS pg_catalog.bool LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $pytest_dsql_engine$
BEGIN
  IF EXISTS (SELECT FROM {rows} WHERE false{twice}) THEN
    RAISE unique_violation;
  END IF;{orphans}
  RETURN true;
END
$pytest_dsql_engine$;
CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.rows_deleted_{relid}(rows pg_catalog.text[], others pg_catalog.int8)
RETURNS pg_catalog.bool LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = on SET enable_bitmapscan = on SET enable_hashjoin = on SET enable_mergejoin = on AS $pytest_dsql_engine$
BEGIN{widows}
  RETURN pytest_dsql_engine_sandbox.count_deleted(pg_catalog.cardinality(rows));
END
$pytest_dsql_engine$;
$t$,
    'relid', relation::text, 'rows', rows, 'twice', twice, 'orphans', orphans, 'widows', widows);
END
$$;
