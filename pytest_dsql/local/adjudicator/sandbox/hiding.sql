-- Clients see nothing of the engine's own. Where they name these catalogs, the dialect puts the views of the same names
-- in their place (`dialect/hiding.py`): the catalogs themselves keep their names, which stand for their numbers in
-- `'pg_class'::regclass`, and their system columns.

CREATE SCHEMA pytest_dsql_engine_catalog;
GRANT USAGE ON SCHEMA pytest_dsql_engine_catalog TO PUBLIC;

CREATE VIEW pytest_dsql_engine_catalog.pg_namespace AS
  SELECT * FROM pg_catalog.pg_namespace WHERE NOT pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine');
CREATE VIEW pytest_dsql_engine_catalog.pg_class AS
  SELECT * FROM pg_catalog.pg_class
  WHERE relnamespace <> ALL (ARRAY(
      SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine')))
    AND NOT pg_catalog.starts_with(relname::text, 'pytest_dsql_engine')
    -- Where the long values of helpers are.
    AND (relnamespace, relowner) <> (
      'pg_toast'::pg_catalog.regnamespace, (SELECT oid FROM pg_catalog.pg_authid WHERE rolname = 'pytest_dsql_engine'));
CREATE VIEW pytest_dsql_engine_catalog.pg_type AS
  SELECT * FROM pg_catalog.pg_type
  WHERE typnamespace <> ALL (ARRAY(
      SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine')))
    AND NOT pg_catalog.starts_with(pg_catalog.ltrim(typname::text, '_'), 'pytest_dsql_engine');
CREATE VIEW pytest_dsql_engine_catalog.pg_proc AS
  SELECT * FROM pg_catalog.pg_proc
  WHERE pronamespace <> ALL (ARRAY(
      SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine')))
    AND NOT pg_catalog.starts_with(proname::text, 'pytest_dsql_engine');
CREATE VIEW pytest_dsql_engine_catalog.pg_constraint AS
  SELECT * FROM pg_catalog.pg_constraint
  WHERE connamespace <> ALL (ARRAY(
    SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine')));
GRANT SELECT ON ALL TABLES IN SCHEMA pytest_dsql_engine_catalog TO PUBLIC;

-- PostgreSQL's own views on those catalogs.
DO $$
DECLARE
  v record;
BEGIN
  FOR v IN
    SELECT c.oid, n.nspname, c.relname, c.reloptions, pg_catalog.regexp_replace(pg_catalog.pg_get_viewdef(c.oid),
      '([\s(,])(pg_class|pg_namespace|pg_proc)(?=[\s,);])', '\1pytest_dsql_engine_catalog.\2', 'g') AS definition
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind = 'v' AND n.nspname IN ('pg_catalog', 'information_schema')
      AND pg_catalog.pg_get_viewdef(c.oid) ~ '[\s(,](pg_class|pg_namespace|pg_proc)[\s,);]'
      AND c.relname <> 'pg_seclabels'
  LOOP
    EXECUTE pg_catalog.format('CREATE OR REPLACE VIEW %I.%I%s AS %s', v.nspname, v.relname,
      ' WITH (' || pg_catalog.array_to_string(v.reloptions, ', ') || ')', v.definition);
  END LOOP;
END
$$;

-- Definitions would tell what the views of schema `sys` are made of.
DO $$
BEGIN
  EXECUTE 'CREATE OR REPLACE VIEW pg_catalog.pg_views AS SELECT schemaname, viewname, viewowner, '
    'CASE WHEN definition !~ ''pytest_dsql_engine'' THEN definition END AS definition FROM ('
    || pg_catalog.rtrim(pg_catalog.pg_get_viewdef('pg_catalog.pg_views'::regclass), ';') || ') AS views';
END
$$;
