-- What the gateway knows of the clients' tables, as one JSON text. It waits for nobody.

CREATE FUNCTION pytest_dsql_engine_sandbox.described_tables() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $$
BEGIN
  RETURN (WITH relation AS (
    SELECT c.oid, nspname, relname, relkind FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE relkind IN ('r', 'v') AND pytest_dsql_engine_sandbox.is_clients(nspname)
  ), described AS (
    SELECT attrelid, json_agg(attname ORDER BY attnum) AS columns,
      json_agg(format_type(atttypid, atttypmod) ORDER BY attnum) AS types,
      json_agg(attname ORDER BY attnum) FILTER (WHERE attgenerated <> '') AS generated,
      json_agg(attname ORDER BY attnum) FILTER (WHERE attidentity <> '') AS identities,
      json_agg(attname ORDER BY attnum) FILTER (WHERE attidentity = 'a') AS always,
      json_agg(attname ORDER BY attnum) FILTER (WHERE atttypid IN ('json'::regtype, 'xml'::regtype)) AS ungroupable,
      -- No column is named in a default; and without its table's number PostgreSQL doesn't open the table for that,
      -- which may be locked by whoever is changing it.
      json_object_agg(attname, CASE WHEN attidentity <> '' THEN 'nextval()' ELSE pg_get_expr(d.adbin, 0) END)
        FILTER (WHERE attidentity <> '' OR (attgenerated = '' AND d.adbin IS NOT NULL)) AS defaults
    FROM pg_attribute LEFT JOIN pg_attrdef AS d ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid IN (SELECT oid FROM relation) AND attnum > 0 AND NOT attisdropped
    GROUP BY attrelid
  ), keyed AS (
    SELECT indrelid, json_agg(json_build_object(
        'oid', indexrelid::bigint, 'name', i.relname, 'primary', indisprimary, 'nulls_distinct', NOT indnullsnotdistinct,
        'expression', (SELECT keys->>indexrelid::text FROM pytest_dsql_engine_sandbox.helper WHERE relid = indrelid),
        'columns', (SELECT json_agg(attname ORDER BY n) FROM generate_series(0, indnkeyatts - 1) AS n
          JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[n])) ORDER BY indisprimary DESC, indexrelid)
      FILTER (WHERE indexprs IS NULL AND indpred IS NULL) AS keys,
      bool_or(indexprs IS NOT NULL OR indpred IS NOT NULL) AS extra
    FROM pytest_dsql_engine_index JOIN pg_class AS i ON i.oid = indexrelid
    WHERE indisunique AND indislive AND indrelid IN (SELECT oid FROM relation)
    GROUP BY indrelid
  )
  SELECT json_build_object(
    'stale', EXISTS (SELECT FROM pytest_dsql_engine_sandbox.stale),
    'tables', (SELECT COALESCE(json_agg(json_build_object(
        'oid', r.oid::bigint, 'schema', nspname, 'name', relname, 'view', relkind = 'v', 'columns', COALESCE(columns, '[]'),
        'types', COALESCE(types, '[]'), 'generated', COALESCE(generated, '[]'), 'identities', COALESCE(identities, '[]'), 'always', COALESCE(always, '[]'),
        'ungroupable', COALESCE(ungroupable, '[]'),
        'defaults', COALESCE(defaults, '{}'), 'keys', COALESCE(keys, '[]'), 'extra_unique', COALESCE(extra, false),
        'insert_only', relkind = 'r' AND EXISTS (SELECT FROM pg_roles AS p WHERE NOT rolsuper AND NOT starts_with(rolname::text, 'pg_')
          AND has_any_column_privilege(p.oid, r.oid, 'INSERT') AND NOT has_table_privilege(p.oid, r.oid, 'SELECT')))), '[]')
      FROM relation AS r LEFT JOIN described ON attrelid = r.oid LEFT JOIN keyed ON indrelid = r.oid),
    'foreign_keys', (SELECT COALESCE(json_agg(json_build_object(
        'oid', oid::bigint, 'name', conname, 'table', conrelid::bigint, 'parent', confrelid::bigint,
        'columns', pytest_dsql_engine_sandbox.column_names(conrelid, conkey),
        'parent_columns', pytest_dsql_engine_sandbox.column_names(confrelid, confkey),
        'on_delete', confdeltype, 'on_update', confupdtype)), '[]')
      FROM pg_constraint WHERE contype = 'f'),
    'volatile_functions', (SELECT json_agg(DISTINCT proname) FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace
      WHERE provolatile = 'v' AND NOT pytest_dsql_engine_sandbox.is_hidden(nspname)),
    'client_functions', (SELECT COALESCE(json_agg(DISTINCT proname), '[]')
      FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace
      WHERE provolatile = 'v' AND pytest_dsql_engine_sandbox.is_clients(nspname)),
    -- Views that call one of these, and views on such views.
    'calling_views', (WITH RECURSIVE calling(oid) AS (
        SELECT r.ev_class FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
          JOIN pg_depend AS d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid AND d.classid = 'pg_rewrite'::regclass
          JOIN pg_rewrite AS r ON r.oid = d.objid
        WHERE provolatile = 'v' AND pytest_dsql_engine_sandbox.is_clients(nspname)
        UNION SELECT r.ev_class FROM calling
          JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = calling.oid AND d.classid = 'pg_rewrite'::regclass
          JOIN pg_rewrite AS r ON r.oid = d.objid
      ) SELECT COALESCE(json_agg(DISTINCT relname), '[]') FROM calling JOIN pg_class AS c ON c.oid = calling.oid)));
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.described_tables FROM PUBLIC;

-- The same after the helpers were made what they have to be. One connection at a time.
CREATE FUNCTION pytest_dsql_engine_sandbox.catalog() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('pytest_dsql_engine_sandbox', 0));
  PERFORM pytest_dsql_engine_sandbox.settle();
  RETURN pytest_dsql_engine_sandbox.described_tables()::pg_catalog.text;
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.catalog FROM PUBLIC;
