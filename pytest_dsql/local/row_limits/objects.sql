-- After the clients' DDL: how many objects there are, and what a table, an index or a view may be like.

-- The schemas that are the clients', and not the system's or the engine's.
CREATE VIEW pytest_dsql_engine_limits.their_schemas AS
  SELECT oid, nspname FROM pg_namespace
  WHERE nspname NOT LIKE 'pg\_%' AND nspname NOT LIKE 'pytest\_dsql\_engine%' AND nspname NOT IN ('information_schema', 'sys');

CREATE FUNCTION pytest_dsql_engine_limits.check_schemas() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- `public` and `sys` don't count (seen on clusters in 2026).
  IF (SELECT count(*) FROM pytest_dsql_engine_limits.their_schemas WHERE nspname <> 'public')
    > pytest_dsql_engine_limits.schemas()
  THEN
    PERFORM pytest_dsql_engine_limits.refuse(
      format('more than %s schemas not allowed', pytest_dsql_engine_limits.schemas()));
  END IF;
END
$$;

CREATE FUNCTION pytest_dsql_engine_limits.check_relations(kind "char", most bigint, message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT count(*) FROM pg_class c JOIN pytest_dsql_engine_limits.their_schemas s ON s.oid = relnamespace
      WHERE relkind = kind) > most
  THEN
    PERFORM pytest_dsql_engine_limits.refuse(format(message, most));
  END IF;
END
$$;

-- 256 columns, whatever one of the messages says (seen on clusters in October 2026).
CREATE FUNCTION pytest_dsql_engine_limits.check_columns(relation oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  most bigint := pytest_dsql_engine_limits.columns();
BEGIN
  IF (SELECT count(*) FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped) > most THEN
    RAISE EXCEPTION USING ERRCODE = 'too_many_columns', MESSAGE = CASE
      WHEN EXISTS (SELECT FROM pg_index WHERE indrelid = relation AND indisprimary)
      THEN format('cannot use more than %s columns in an index', most)
      ELSE format('tables can have at most %s columns', CASE most WHEN 256 THEN 255 ELSE most END) END;
  END IF;
END
$$;

-- What is looked at beside this, a key's declared size, is looked at where the table's functions are made.
CREATE FUNCTION pytest_dsql_engine_limits.check_indexes(relation oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  indexes integer;
  columns integer;
BEGIN
  SELECT count(*), max(indnkeyatts) INTO indexes, columns FROM pg_index WHERE indrelid = relation;
  IF indexes > pytest_dsql_engine_limits.indexes() THEN
    PERFORM pytest_dsql_engine_limits.refuse(
      format('more than %s indexes per table are not allowed', pytest_dsql_engine_limits.indexes()));
  END IF;
  IF columns > 8 THEN
    RAISE EXCEPTION USING
      ERRCODE = 'too_many_columns', MESSAGE = 'more than 8 column keys in an index are not supported';
  END IF;
END
$$;

CREATE FUNCTION pytest_dsql_engine_limits.check_view(relation oid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF octet_length(pg_get_viewdef(relation)) > pytest_dsql_engine_limits.view_bytes() THEN
    PERFORM pytest_dsql_engine_limits.refuse('view definition too large');
  END IF;
END
$$;

CREATE FUNCTION pytest_dsql_engine_limits.check_statistics(statistics oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  target integer;
  relation oid;
BEGIN
  SELECT stxstattarget, stxrelid INTO target, relation FROM pg_statistic_ext WHERE oid = statistics;
  IF target > 100 THEN
    RAISE EXCEPTION USING
      ERRCODE = 'invalid_parameter_value',
      MESSAGE = format('statistics target %s exceeds maximum allowed value of 100', target);
  END IF;
  IF (SELECT count(*) FROM pg_statistic_ext WHERE stxrelid = relation) > pytest_dsql_engine_limits.statistics() THEN
    PERFORM pytest_dsql_engine_limits.refuse(
      format('more than %s extended statistics per table are not allowed', pytest_dsql_engine_limits.statistics()));
  END IF;
END
$$;

CREATE FUNCTION pytest_dsql_engine_limits.after_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  made record;
  schema oid;
  kind "char";
BEGIN
  -- What the engine makes for itself beside a client's object.
  IF show_config_by_name_missing_ok('pytest_dsql_engine.renewing', true) = 'on' THEN
    RETURN;
  END IF;
  FOR made IN SELECT DISTINCT classid, objid, command_tag FROM pg_event_trigger_ddl_commands() LOOP
    IF made.classid = 'pg_namespace'::regclass THEN
      IF made.command_tag = 'CREATE SCHEMA' THEN
        PERFORM pytest_dsql_engine_limits.check_schemas();
      END IF;
      CONTINUE;
    END IF;
    IF made.classid = 'pg_statistic_ext'::regclass THEN
      PERFORM pytest_dsql_engine_limits.check_statistics(made.objid);
      CONTINUE;
    END IF;
    CONTINUE WHEN made.classid <> 'pg_class'::regclass;
    -- A table, also where one of its indexes was made.
    SELECT c.oid, c.relnamespace, c.relkind INTO made.objid, schema, kind FROM pg_class c
    WHERE c.oid = COALESCE((SELECT indrelid FROM pg_index WHERE indexrelid = made.objid), made.objid);
    CONTINUE WHEN NOT FOUND OR NOT EXISTS (SELECT FROM pytest_dsql_engine_limits.their_schemas WHERE oid = schema);
    CASE kind
      WHEN 'r' THEN
        IF made.command_tag = 'CREATE TABLE' THEN
          PERFORM pytest_dsql_engine_limits.check_relations(
            'r', pytest_dsql_engine_limits.tables(), 'creating more than %s tables not allowed');
        END IF;
        PERFORM pytest_dsql_engine_limits.check_columns(made.objid);
        PERFORM pytest_dsql_engine_limits.check_indexes(made.objid);
        CALL pytest_dsql_engine_limits.equip(made.objid);
      WHEN 'v' THEN
        IF made.command_tag = 'CREATE VIEW' THEN
          PERFORM pytest_dsql_engine_limits.check_relations(
            'v', pytest_dsql_engine_limits.views(), 'creating more than %s views not allowed');
        END IF;
        PERFORM pytest_dsql_engine_limits.check_view(made.objid);
      WHEN 'S' THEN
        IF made.command_tag = 'CREATE SEQUENCE' THEN
          PERFORM pytest_dsql_engine_limits.check_relations(
            'S', pytest_dsql_engine_limits.sequences(), 'creating more than %s sequences is not allowed');
        END IF;
      ELSE
        NULL;
    END CASE;
  END LOOP;
END
$$;

CREATE EVENT TRIGGER pytest_dsql_engine_limits_ddl ON ddl_command_end
WHEN TAG IN (
  'CREATE TABLE', 'ALTER TABLE', 'CREATE INDEX', 'CREATE SCHEMA', 'CREATE VIEW', 'ALTER VIEW', 'CREATE SEQUENCE',
  'CREATE STATISTICS', 'ALTER STATISTICS')
EXECUTE FUNCTION pytest_dsql_engine_limits.after_ddl();

CREATE FUNCTION pytest_dsql_engine_limits.after_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
  gone record;
  changed oid;
BEGIN
  -- What the engine makes for itself beside a client's object.
  IF show_config_by_name_missing_ok('pytest_dsql_engine.renewing', true) = 'on' THEN
    RETURN;
  END IF;
  FOR gone IN SELECT objid, object_type FROM pg_event_trigger_dropped_objects() WHERE classid = 'pg_class'::regclass LOOP
    IF gone.object_type = 'table' THEN
      -- Whatever else of the engine counts by them goes with the table too.
      EXECUTE format('DROP FUNCTION IF EXISTS pytest_dsql_engine_limits.%I, pytest_dsql_engine_limits.%I CASCADE',
        format('insert_%s', gone.objid), format('update_%s', gone.objid));
    ELSIF gone.object_type = 'index' THEN
      DELETE FROM pytest_dsql_engine_limits.known_index WHERE index = gone.objid RETURNING relation INTO changed;
      IF EXISTS (SELECT FROM pg_class WHERE oid = changed) THEN
        CALL pytest_dsql_engine_limits.equip(changed);
      END IF;
    END IF;
  END LOOP;
END
$$;

CREATE EVENT TRIGGER pytest_dsql_engine_limits_drop ON sql_drop EXECUTE FUNCTION pytest_dsql_engine_limits.after_drop();
