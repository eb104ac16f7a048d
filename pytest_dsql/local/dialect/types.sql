-- The types that a statement's own words don't show: of columns taken over by LIKE, of rows of other tables, behind
-- domains, of expressions in keys, of a column that becomes an identity. Looked at after the clients' DDL.

CREATE FUNCTION pytest_dsql_engine.base_type(type oid) RETURNS oid LANGUAGE sql STABLE AS $$
  WITH RECURSIVE bases(type) AS (
    SELECT type
    UNION ALL
    SELECT typbasetype FROM bases JOIN pg_catalog.pg_type t ON t.oid = bases.type WHERE typtype = 'd'
  )
  SELECT bases.type FROM bases JOIN pg_catalog.pg_type t ON t.oid = bases.type WHERE typtype <> 'd'
$$;

-- The type as PostgreSQL shows it where its schema is on the path: of rows of tables, and of domains' arrays.
CREATE FUNCTION pytest_dsql_engine.shown_type(type oid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN COALESCE(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace THEN pg_catalog.format_type(t.oid, NULL)
    WHEN e.oid IS NULL THEN pg_catalog.quote_ident(t.typname)
    ELSE pg_catalog.quote_ident(e.typname) || '[]' END
  FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
  WHERE t.oid = shown_type.type
$$;

CREATE FUNCTION pytest_dsql_engine.check_types() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  -- AWS user guide, "Supported data types in Aurora DSQL".
  storable CONSTANT oid[] := ARRAY['smallint', 'integer', 'bigint', 'real', 'double precision', 'numeric', 'bpchar',
    'varchar', 'text', 'date', 'time', 'timetz', 'timestamp', 'timestamptz', 'interval', 'boolean', 'bytea', 'uuid',
    'json', 'jsonb']::regtype[]::oid[];
  no_key CONSTANT oid[] := ARRAY['timetz', 'interval', 'bytea', 'json', 'jsonb']::regtype[]::oid[];
  made record;
  bad text;
BEGIN
  -- A domain is made of what can be stored, or of such a domain.
  SELECT pytest_dsql_engine.shown_type(t.typbasetype) INTO bad
  FROM pg_event_trigger_ddl_commands() d JOIN pg_type t ON t.oid = d.objid AND t.typtype = 'd'
  WHERE d.classid = 'pg_type'::regclass AND pytest_dsql_engine.base_type(t.oid) <> ALL (storable);
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format('datatype %s not supported', bad);
  END IF;
  FOR made IN
    SELECT DISTINCT c.oid, c.relkind FROM pg_event_trigger_ddl_commands() d
    JOIN pg_class c ON c.oid = d.objid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'i')
      AND nspname NOT LIKE 'pg\_%' AND nspname NOT LIKE 'pytest\_dsql\_engine%'
  LOOP
    IF made.relkind = 'r' THEN
      SELECT pytest_dsql_engine.shown_type(atttypid) INTO bad FROM pg_attribute
      WHERE attrelid = made.oid AND attnum > 0 AND NOT attisdropped
        AND pytest_dsql_engine.base_type(atttypid) <> ALL (storable)
      ORDER BY attnum LIMIT 1;
      IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format('datatype %s not supported', bad);
      END IF;
      SELECT format_type(atttypid, NULL) INTO bad FROM pg_attribute
      WHERE attrelid = made.oid AND attidentity <> '' AND NOT attisdropped AND atttypid <> 'bigint'::regtype
      ORDER BY attnum LIMIT 1;
      IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
          MESSAGE = format('datatype %s not supported, identity column type must be bigint', bad);
      END IF;
    END IF;
    SELECT format_type(pytest_dsql_engine.base_type(atttypid), NULL) INTO bad
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum <= i.indnkeyatts
    WHERE made.oid IN (i.indexrelid, i.indrelid)
      AND (pytest_dsql_engine.base_type(atttypid) = ANY (no_key)
        OR pytest_dsql_engine.base_type(atttypid) <> ALL (storable))
    ORDER BY i.indexrelid, a.attnum LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING
        ERRCODE = 'feature_not_supported', MESSAGE = format('datatype %s is not supported in a key', bad);
    END IF;
  END LOOP;
END
$$;

CREATE EVENT TRIGGER pytest_dsql_engine_types ON ddl_command_end
WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE INDEX', 'CREATE SCHEMA', 'CREATE DOMAIN') EXECUTE FUNCTION pytest_dsql_engine.check_types();
