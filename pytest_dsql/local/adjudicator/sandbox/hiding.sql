-- Clients see nothing of the engine's own. Where they name these catalogs, the dialect puts the views of the same names
-- in their place (`dialect/hiding.py`): the catalogs themselves keep their names, which stand for their numbers in
-- `'pg_class'::regclass`.

CREATE SCHEMA pytest_dsql_engine_catalog;
-- The same views with the columns that every table has, for those who ask for them.
CREATE SCHEMA pytest_dsql_engine_catalog_system;
GRANT USAGE ON SCHEMA pytest_dsql_engine_catalog, pytest_dsql_engine_catalog_system TO PUBLIC;

-- The engine's own relations, and its own objects as dependencies name them. Of triggers clients see none (row_limits/hiding.sql).
CREATE VIEW pytest_dsql_engine_catalog.own_relations AS
  SELECT oid FROM pg_catalog.pg_class
  WHERE relnamespace IN (SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine'))
    OR pg_catalog.starts_with(relname::text, 'pytest_dsql_engine')
    -- Where the long values of helpers are.
    OR (relnamespace = 'pg_toast'::pg_catalog.regnamespace
      AND relowner = (SELECT oid FROM pg_catalog.pg_authid WHERE rolname = 'pytest_dsql_engine'));

CREATE VIEW pytest_dsql_engine_catalog.own_objects AS
  WITH own AS MATERIALIZED (
    SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, 'pytest_dsql_engine')
  ), relations AS MATERIALIZED (SELECT oid FROM pytest_dsql_engine_catalog.own_relations)
  SELECT 'pg_catalog.pg_namespace'::regclass::oid AS classid, oid AS objid FROM own
  UNION ALL SELECT 'pg_catalog.pg_class'::regclass, oid FROM relations
  UNION ALL SELECT 'pg_catalog.pg_type'::regclass, oid FROM pg_catalog.pg_type WHERE typnamespace IN (TABLE own)
  UNION ALL SELECT 'pg_catalog.pg_proc'::regclass, oid FROM pg_catalog.pg_proc
    WHERE pronamespace IN (TABLE own) OR pg_catalog.starts_with(proname::text, 'pytest_dsql_engine')
      OR (pronamespace = 'information_schema'::regnamespace AND proargtypes::oid[] && ARRAY(
        SELECT oid FROM pg_catalog.pg_type WHERE typnamespace IN (TABLE own)))
  UNION ALL SELECT 'pg_catalog.pg_constraint'::regclass, oid FROM pg_catalog.pg_constraint WHERE connamespace IN (TABLE own)
  UNION ALL SELECT 'pg_catalog.pg_attrdef'::regclass, oid FROM pg_catalog.pg_attrdef WHERE adrelid IN (TABLE relations)
  UNION ALL SELECT 'pg_catalog.pg_rewrite'::regclass, oid FROM pg_catalog.pg_rewrite WHERE ev_class IN (TABLE relations)
  UNION ALL SELECT 2620, oid FROM pg_catalog.pytest_dsql_engine_trigger
  UNION ALL SELECT 3466, oid FROM pg_catalog.pytest_dsql_engine_event_trigger;

-- Only catalogs have columns of no particular type, as pg_attribute has.
SET LOCAL allow_system_table_mods = on;

DO $$
DECLARE
  engines text := 'ARRAY(SELECT oid FROM pg_catalog.pg_namespace WHERE pg_catalog.starts_with(nspname::text, ''pytest_dsql_engine''))';
  v record;
BEGIN
  FOR v IN
    SELECT c.name, replace(replace(replace(c.shown, '{engines}', engines),
        '{relations}', '(SELECT oid FROM pytest_dsql_engine_catalog.own_relations)'),
        '{objects}', '(SELECT classid, objid FROM pytest_dsql_engine_catalog.own_objects)') AS shown,
      -- The views that take a catalog's name have no system columns.
      CASE WHEN EXISTS (SELECT FROM pg_class WHERE oid = c.name::regclass AND relkind = 'r')
        THEN ', tableoid, ctid, xmin, xmax, cmin, cmax' ELSE '' END AS system_columns, (
      -- DSQL has no triggers, and most that tables have are the engine's: what is left are those of foreign keys, which
      -- psql's \d asks for before it shows the keys.
      SELECT string_agg(CASE attname
        WHEN 'relhastriggers' THEN 'oid IN (SELECT pg_catalog.unnest(ARRAY[conrelid, confrelid])'
          ' FROM pg_catalog.pg_constraint WHERE contype = ''f'') AS relhastriggers'
        -- Not how the engine does it.
        WHEN 'prosrc' THEN 'CASE WHEN proowner = 10 AND prosrc ~ ''pytest_dsql_engine'' THEN proname ELSE prosrc END AS prosrc'
        ELSE quote_ident(attname) END, ', ' ORDER BY attnum)
      FROM pg_attribute WHERE attrelid = c.name::regclass AND attnum > 0 AND NOT attisdropped) AS columns
    FROM (VALUES
      -- Nothing is temporary, but the engine's.
      ('pg_namespace', 'NOT pg_catalog.starts_with(nspname::text, ''pytest_dsql_engine'') AND nspname !~ ''^pg_(toast_)?temp_'''),
      -- The last condition: where the long values of helpers are.
      ('pg_class', 'relnamespace <> ALL ({engines}) AND NOT pg_catalog.starts_with(relname::text, ''pytest_dsql_engine'')'
        ' AND (relnamespace, relowner) <> (''pg_toast''::pg_catalog.regnamespace,'
        ' (SELECT oid FROM pg_catalog.pg_authid WHERE rolname = ''pytest_dsql_engine''))'),
      ('pg_attribute', 'attrelid NOT IN {relations}'),
      ('pg_attrdef', 'adrelid NOT IN {relations}'),
      ('pg_index', 'indrelid NOT IN {relations}'),
      ('pg_rewrite', 'ev_class NOT IN {relations}'),
      ('pg_depend', '(classid, objid) NOT IN {objects} AND (refclassid, refobjid) NOT IN {objects}'),
      ('pg_shdepend', '(classid, objid) NOT IN {objects} AND refobjid NOT IN'
        ' (SELECT oid FROM pg_catalog.pg_authid WHERE rolname = ''pytest_dsql_engine'')'),
      ('pg_init_privs', '(classoid, objoid) NOT IN {objects}'),
      -- The database's settings are the engine's.
      ('pg_db_role_setting', 'setrole <> 0'),
      ('pg_type', 'typnamespace <> ALL ({engines})'
        ' AND NOT pg_catalog.starts_with(pg_catalog.ltrim(typname::text, ''_''), ''pytest_dsql_engine'')'),
      ('pg_proc', 'pronamespace <> ALL ({engines}) AND NOT pg_catalog.starts_with(proname::text, ''pytest_dsql_engine'')'
        ' AND (pronamespace <> ''information_schema''::pg_catalog.regnamespace OR NOT proargtypes::oid[] && ARRAY('
        'SELECT oid FROM pg_catalog.pg_type WHERE typnamespace = ANY ({engines})))'),
      ('pg_constraint', 'connamespace <> ALL ({engines})')
    ) AS c(name, shown)
  LOOP
    EXECUTE format('CREATE VIEW pytest_dsql_engine_catalog.%1$I AS SELECT %2$s FROM pg_catalog.%1$I WHERE %3$s',
      v.name, v.columns, v.shown);
    EXECUTE format('CREATE VIEW pytest_dsql_engine_catalog_system.%1$I AS'
      ' SELECT %2$s%4$s FROM pg_catalog.%1$I WHERE %3$s', v.name, v.columns, v.shown, v.system_columns);
  END LOOP;
END
$$;
SET LOCAL allow_system_table_mods = off;
GRANT SELECT ON ALL TABLES IN SCHEMA pytest_dsql_engine_catalog, pytest_dsql_engine_catalog_system TO PUBLIC;

-- Functions of the information schema that take whole rows of these catalogs.
DO $$
DECLARE
  v record;
BEGIN
  FOR v IN
    SELECT p.proname, pg_catalog.format_type(p.prorettype, NULL) AS result, s.nspname AS shown
    FROM pg_catalog.pg_proc p, pg_catalog.pg_namespace s
    WHERE p.pronamespace = 'information_schema'::regnamespace AND p.proname IN ('_pg_truetypid', '_pg_truetypmod')
      AND s.nspname IN ('pytest_dsql_engine_catalog', 'pytest_dsql_engine_catalog_system')
  LOOP
    EXECUTE pg_catalog.format('CREATE FUNCTION information_schema.%I(%I.pg_attribute, %I.pg_type) RETURNS %s'
      ' LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURNS NULL ON NULL INPUT'
      ' RETURN CASE WHEN ($2).typtype = ''d''::"char" THEN ($2).%I ELSE ($1).%I END',
      v.proname, v.shown, v.shown, v.result,
      CASE v.proname WHEN '_pg_truetypid' THEN 'typbasetype' ELSE 'typtypmod' END,
      CASE v.proname WHEN '_pg_truetypid' THEN 'atttypid' ELSE 'atttypmod' END);
  END LOOP;
END
$$;

-- PostgreSQL's own views on those catalogs.
DO $$
DECLARE
  v record;
BEGIN
  FOR v IN
    SELECT c.oid, n.nspname, c.relname, c.reloptions, pg_catalog.regexp_replace(pg_catalog.pg_get_viewdef(c.oid),
      CASE c.relname WHEN 'udt_privileges' THEN '([\s(,])(pg_class|pg_namespace|pg_proc|pg_type)(?=[\s,);])'
        ELSE '([\s(,])(pg_class|pg_namespace|pg_proc)(?=[\s,);])' END,
      '\1pytest_dsql_engine_catalog.\2', 'g') AS definition
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
