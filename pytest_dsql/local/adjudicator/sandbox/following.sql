-- Clients' views have twins among the hidden views, and everything is kept as the catalog is, in the transaction that
-- changes it.

-- A view's text with the hidden views in place of the clients' tables and views: its names all have a schema, so those
-- that are followed by no parenthesis and stand behind no colon are relations. Literals and quoted names are stepped over.
CREATE FUNCTION pytest_dsql_engine_sandbox.redirected(definition text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  found text[];
  written text := '';
  name text[];
BEGIN
  FOR found IN SELECT regexp_matches(definition,
    '(''(?:[^'']|'''')*''|::\s*(?:"(?:[^"]|"")+"|[[:alnum:]_$])+(?:\.(?:"(?:[^"]|"")+"|[[:alnum:]_$]+))*'
    '|(?:"(?:[^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)(?:\.(?:"(?:[^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*))*\s*\(?|.)', 'g')
  LOOP
    IF found[1] ~ '^["[:alpha:]_].*\.' AND found[1] !~ '\($' THEN
      name := parse_ident(found[1]);
      IF cardinality(name) = 2 AND EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
        WHERE nspname = name[1] AND relname = name[2] AND relkind IN ('r', 'v') AND pytest_dsql_engine_sandbox.is_clients(nspname))
      THEN
        found[1] := format('%I.%I', pytest_dsql_engine_sandbox.view_schema(name[1]::name), name[2]) || substring(found[1] FROM '\s*$');
      END IF;
    END IF;
    written := written || found[1];
  END LOOP;
  RETURN written;
END
$$;

-- Makes the twin of a client's view what it has to be, after those of the views it reads.
CREATE FUNCTION pytest_dsql_engine_sandbox.renew_view(relation oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  below oid;
  h pytest_dsql_engine_sandbox.helper;
  schema text;
  owner oid;
  acl aclitem[];
BEGIN
  FOR below IN
    SELECT DISTINCT d.refobjid FROM pg_rewrite AS r JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
    JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
    WHERE r.ev_class = relation AND c.oid <> relation AND c.relkind = 'v'
  LOOP
    PERFORM pytest_dsql_engine_sandbox.renew_view(below);
  END LOOP;
  SELECT nspname, format('%I.%I', nspname, relname), format('%I.%I', pytest_dsql_engine_sandbox.view_schema(nspname), relname), relowner, relacl,
    format('CREATE VIEW %I.%I (%s)%s AS %s', pytest_dsql_engine_sandbox.view_schema(nspname), relname,
      (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = relation AND attnum > 0),
      ' WITH (' || array_to_string(reloptions, ', ') || ')', pytest_dsql_engine_sandbox.redirected(pg_get_viewdef(relation)))
  INTO schema, h.place, h.view_name, owner, acl, h.view_text
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
  WHERE c.oid = relation AND relkind = 'v' AND pytest_dsql_engine_sandbox.is_clients(nspname);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM pytest_dsql_engine_sandbox.helper AS p
    WHERE p.relid = relation AND p.view_text = h.view_text AND to_regclass(p.view_name) IS NOT NULL)
  THEN
    PERFORM pytest_dsql_engine_sandbox.remove(p) FROM pytest_dsql_engine_sandbox.helper AS p WHERE p.relid = relation;
    PERFORM pytest_dsql_engine_sandbox.make_schemas(schema);
    EXECUTE h.view_text;
    INSERT INTO pytest_dsql_engine_sandbox.helper (relid, place, view_name, view_text, neighbours, indexes)
    VALUES (relation, h.place, h.view_name, h.view_text, '{}', '{}');
    PERFORM pytest_dsql_engine_sandbox.detach(ARRAY[h.view_name::regclass::oid]);
  END IF;
  -- It reads with its owner's privileges, as the view does.
  UPDATE pg_class SET relowner = owner, relacl = acl
  WHERE oid = h.view_name::regclass AND (relowner, relacl) IS DISTINCT FROM (owner, acl);
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.renew_views() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pytest_dsql_engine_sandbox.renew_view(c.oid)
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
  WHERE relkind = 'v' AND pytest_dsql_engine_sandbox.is_clients(nspname) AND c.oid >= 16384;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.copy_all_privileges() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pytest_dsql_engine_sandbox.copy_privileges(relid, view_name::regclass),
    pytest_dsql_engine_sandbox.copy_privileges(relid, to_regclass(replace(view_name, 'pytest_dsql_engine_v_', 'pytest_dsql_engine_s_')))
  FROM pytest_dsql_engine_sandbox.helper WHERE overlay_name IS NOT NULL;
END
$$;

-- Removes what belongs to nothing any more.
CREATE FUNCTION pytest_dsql_engine_sandbox.forget(relation oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  f text;
BEGIN
  PERFORM pytest_dsql_engine_sandbox.remove(h) FROM pytest_dsql_engine_sandbox.helper AS h WHERE h.relid = relation;
  DELETE FROM pytest_dsql_engine_sandbox.watched WHERE relid = relation;
  FOR f IN SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pytest_dsql_engine_sandbox'::regnamespace
    AND proname::text = ANY (ARRAY['write_' || relation, 'events_' || relation, 'freed_' || relation, 'shared_' || relation,
      'keys_' || relation, 'rows_written_' || relation, 'rows_deleted_' || relation])
  LOOP
    EXECUTE 'DROP FUNCTION ' || f;
  END LOOP;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.forget_schemas() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  s name;
BEGIN
  FOR s IN
    SELECT nspname FROM pg_namespace WHERE nspname ~ '^pytest_dsql_engine_[vosw]_[0-9a-f]{32}$' AND right(nspname, 32) NOT IN (
      SELECT md5(nspname) FROM pg_namespace WHERE pytest_dsql_engine_sandbox.is_clients(nspname))
  LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', s);
  END LOOP;
END
$$;

-- Makes the helpers what they have to be after what clients have changed: the engine's own connection does it, outside of
-- their transactions. What is in use stays stale until the next time.
CREATE FUNCTION pytest_dsql_engine_sandbox.settle() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
SET pytest_dsql_engine.renewing = on SET client_min_messages = warning SET lock_timeout = '20ms' AS $$
DECLARE
  changed oid[];
  relation oid;
BEGIN
  WITH taken AS (DELETE FROM pytest_dsql_engine_sandbox.stale RETURNING relid)
  SELECT array_agg(DISTINCT relid) INTO changed FROM taken;
  IF changed IS NULL THEN
    RETURN;
  END IF;
  -- A table that is dropped at once has no helpers yet.
  FOR relation IN
    SELECT relid FROM (SELECT relid FROM pytest_dsql_engine_sandbox.helper UNION SELECT relid FROM pytest_dsql_engine_sandbox.watched) AS p
    WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = p.relid)
  LOOP
    changed := changed || (SELECT neighbours FROM pytest_dsql_engine_sandbox.helper WHERE relid = relation);
    BEGIN
      PERFORM pytest_dsql_engine_sandbox.forget(relation);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      INSERT INTO pytest_dsql_engine_sandbox.stale VALUES (0);
    END;
  END LOOP;
  -- Tables that are bound to each other by foreign keys have functions that name each other.
  FOR relation IN
    SELECT unnest(changed) UNION
    SELECT unnest(neighbours) FROM pytest_dsql_engine_sandbox.helper WHERE relid = ANY (changed) UNION
    SELECT relid FROM pytest_dsql_engine_sandbox.helper WHERE neighbours && changed UNION
    SELECT confrelid FROM pg_constraint WHERE conrelid = ANY (changed) AND contype = 'f'
    ORDER BY 1
  LOOP
    BEGIN
      PERFORM pytest_dsql_engine_sandbox.watch(relation);
      PERFORM pytest_dsql_engine_sandbox.renew_table(relation);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      INSERT INTO pytest_dsql_engine_sandbox.stale VALUES (relation);
    END;
  END LOOP;
  BEGIN
    PERFORM pytest_dsql_engine_sandbox.renew_views();
    IF 0 = ANY (changed) THEN
      PERFORM pytest_dsql_engine_sandbox.copy_all_privileges();
      PERFORM pytest_dsql_engine_sandbox.forget_schemas();
    END IF;
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    INSERT INTO pytest_dsql_engine_sandbox.stale VALUES (0);
  END;
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.settle FROM PUBLIC;

CREATE FUNCTION pytest_dsql_engine_sandbox.follow() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
  changed oid[];
BEGIN
  IF show_config_by_name_missing_ok('pytest_dsql_engine.renewing', true) = 'on' THEN
    RETURN;
  END IF;
  -- Without the command's object: GRANT and REVOKE. A schema that is renamed renames everything.
  WITH command AS (
    SELECT c.classid, c.object_type, COALESCE(i.indrelid, k.conrelid, c.objid) AS relid
    FROM pg_event_trigger_ddl_commands() AS c
    LEFT JOIN pytest_dsql_engine_index AS i ON c.object_type = 'index' AND i.indexrelid = c.objid
    LEFT JOIN pg_constraint AS k ON c.object_type = 'table constraint' AND k.oid = c.objid
  ), noted AS (
    INSERT INTO pytest_dsql_engine_sandbox.stale
    SELECT DISTINCT CASE WHEN object_type IN ('table', 'table column', 'table constraint', 'index') THEN COALESCE(relid, 0) ELSE 0 END
    FROM command WHERE object_type IN ('table', 'table column', 'table constraint', 'index', 'view', 'view column', 'schema') OR relid IS NULL
    UNION ALL SELECT h.relid FROM pytest_dsql_engine_sandbox.helper AS h WHERE TG_TAG = 'ALTER SCHEMA'
  )
  -- Two indexes of a table may be made at the same time: their triggers wait until both are there.
  SELECT array_agg(DISTINCT relid) INTO changed FROM command WHERE object_type = 'table' AND TG_TAG IN ('CREATE TABLE', 'ALTER TABLE');
  FOR n IN 1..COALESCE(cardinality(changed), 0) LOOP
    PERFORM pytest_dsql_engine_sandbox.watch(changed[n]);
  END LOOP;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.follow_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF show_config_by_name_missing_ok('pytest_dsql_engine.renewing', true) = 'on' THEN
    RETURN;
  END IF;
  INSERT INTO pytest_dsql_engine_sandbox.stale
  SELECT DISTINCT COALESCE(h.relid, 0) FROM pg_event_trigger_dropped_objects() AS d
  LEFT JOIN pytest_dsql_engine_sandbox.helper AS h ON d.object_type = 'index' AND d.objid = ANY (h.indexes)
  WHERE d.object_type IN ('table', 'view', 'index', 'schema');
END
$$;

SELECT pytest_dsql_engine_sandbox.make_schemas('public');

CREATE EVENT TRIGGER pytest_dsql_engine_sandbox ON ddl_command_end EXECUTE FUNCTION pytest_dsql_engine_sandbox.follow();
CREATE EVENT TRIGGER pytest_dsql_engine_sandbox_drop ON sql_drop EXECUTE FUNCTION pytest_dsql_engine_sandbox.follow_drop();
