-- Clients see nothing of the engine's own. Where they name these catalogs, the dialect puts the views of the same names
-- in their place (`dialect/hiding.py`): the catalogs themselves keep their names, which stand for their numbers in
-- `'pg_class'::regclass`.

CREATE SCHEMA pytest_dsql_engine_catalog;
-- The same views with the columns that every table has, for those who ask for them.
CREATE SCHEMA pytest_dsql_engine_catalog_system;
GRANT USAGE ON SCHEMA pytest_dsql_engine_catalog, pytest_dsql_engine_catalog_system TO PUBLIC;

DO $$
DECLARE
  engines text := 'ARRAY(SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, ''pytest_dsql_engine''))';
  v record;
BEGIN
  FOR v IN
    SELECT c.name, replace(c.shown, '{engines}', engines) AS shown, (
      -- DSQL has no triggers, and most that tables have are the engine's: what is left are those of foreign keys, which
      -- psql's \d asks for before it shows the keys.
      SELECT string_agg(CASE WHEN attname = 'relhastriggers' THEN 'oid IN (SELECT pg_catalog.unnest(ARRAY[conrelid, confrelid])'
        ' FROM pg_catalog.pg_constraint WHERE contype = ''f'') AS relhastriggers' ELSE quote_ident(attname) END, ', ' ORDER BY attnum)
      FROM pg_attribute WHERE attrelid = c.name::regclass AND attnum > 0 AND NOT attisdropped) AS columns
    FROM (VALUES
      ('pg_namespace', 'NOT pg_catalog.starts_with(nspname::text, ''pytest_dsql_engine'')'),
      -- The last condition: where the long values of helpers are.
      ('pg_class', 'relnamespace <> ALL ({engines}) AND NOT pg_catalog.starts_with(relname::text, ''pytest_dsql_engine'')'
        ' AND (relnamespace, relowner) <> (''pg_toast''::pg_catalog.regnamespace,'
        ' (SELECT oid FROM pg_catalog.pg_authid WHERE rolname = ''pytest_dsql_engine''))'),
      ('pg_type', 'typnamespace <> ALL ({engines})'
        ' AND NOT pg_catalog.starts_with(pg_catalog.ltrim(typname::text, ''_''), ''pytest_dsql_engine'')'),
      ('pg_proc', 'pronamespace <> ALL ({engines}) AND NOT pg_catalog.starts_with(proname::text, ''pytest_dsql_engine'')'),
      ('pg_constraint', 'connamespace <> ALL ({engines})')
    ) AS c(name, shown)
  LOOP
    EXECUTE format('CREATE VIEW pytest_dsql_engine_catalog.%1$I AS SELECT %2$s FROM pg_catalog.%1$I WHERE %3$s',
      v.name, v.columns, v.shown);
    EXECUTE format('CREATE VIEW pytest_dsql_engine_catalog_system.%1$I AS'
      ' SELECT %2$s, tableoid, ctid, xmin, xmax, cmin, cmax FROM pg_catalog.%1$I WHERE %3$s', v.name, v.columns, v.shown);
  END LOOP;
END
$$;
GRANT SELECT ON ALL TABLES IN SCHEMA pytest_dsql_engine_catalog, pytest_dsql_engine_catalog_system TO PUBLIC;

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
