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
    PERFORM pytest_dsql_engine_sandbox.detach(relation, ARRAY[h.view_name::regclass::oid]);
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

-- Makes the helpers of these tables what they have to be, and of those that are or were bound to them by foreign keys:
-- their functions name each other. For whoever changes the catalog past PostgreSQL's own commands, too.
CREATE FUNCTION pytest_dsql_engine_sandbox.renew(VARIADIC relations oid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
SET pytest_dsql_engine.renewing = on SET client_min_messages = warning AS $$
DECLARE
  relation oid;
BEGIN
  FOR relation IN
    SELECT unnest(relations) UNION
    SELECT unnest(neighbours) FROM pytest_dsql_engine_sandbox.helper WHERE relid = ANY (relations) UNION
    SELECT relid FROM pytest_dsql_engine_sandbox.helper WHERE neighbours && relations UNION
    SELECT confrelid FROM pg_constraint WHERE conrelid = ANY (relations) AND contype = 'f'
    ORDER BY 1
  LOOP
    -- Two indexes of a table can be made at the same time, its helpers can't.
    PERFORM pg_advisory_xact_lock(hashtextextended(format('helpers of %s', relation), 0));
    PERFORM pytest_dsql_engine_sandbox.renew_table(relation);
  END LOOP;
  PERFORM pytest_dsql_engine_sandbox.renew_views();
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.renew FROM PUBLIC;

-- Removes what belongs to nothing any more.
CREATE FUNCTION pytest_dsql_engine_sandbox.forget(relations oid[], schemas text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET pytest_dsql_engine.renewing = on SET client_min_messages = warning AS $$
DECLARE
  h pytest_dsql_engine_sandbox.helper;
  f text;
  s text;
BEGIN
  FOR h IN DELETE FROM pytest_dsql_engine_sandbox.helper WHERE relid = ANY (relations) RETURNING * LOOP
    PERFORM pytest_dsql_engine_sandbox.remove(h);
    FOR f IN SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pytest_dsql_engine_sandbox'::regnamespace
      AND proname::text = ANY (ARRAY['write_', 'events_', 'freed_', 'shared_', 'keys_'] || h.relid::text)
    LOOP
      EXECUTE 'DROP FUNCTION ' || f;
    END LOOP;
  END LOOP;
  FOREACH s IN ARRAY schemas LOOP
    EXECUTE format('DROP SCHEMA IF EXISTS %I, %I, %I CASCADE', pytest_dsql_engine_sandbox.view_schema(s::name),
      pytest_dsql_engine_sandbox.overlay_schema(s::name), pytest_dsql_engine_sandbox.stage_schema(s::name));
  END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.forget FROM PUBLIC;

CREATE FUNCTION pytest_dsql_engine_sandbox.copy_all_privileges() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT pytest_dsql_engine_sandbox.copy_privileges(relid, view_name::regclass),
    pytest_dsql_engine_sandbox.copy_privileges(relid, to_regclass(replace(view_name, 'pytest_dsql_engine_v_', 'pytest_dsql_engine_s_')))
  FROM pytest_dsql_engine_sandbox.helper WHERE overlay_name IS NOT NULL;
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.copy_all_privileges FROM PUBLIC;

CREATE FUNCTION pytest_dsql_engine_sandbox.prepare(schemas text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET pytest_dsql_engine.renewing = on AS $$
BEGIN
  PERFORM pytest_dsql_engine_sandbox.make_schemas(s) FROM unnest(schemas) AS s WHERE pytest_dsql_engine_sandbox.is_clients(s);
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.prepare FROM PUBLIC;

CREATE FUNCTION pytest_dsql_engine_sandbox.follow() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  changed oid[];
  views boolean;
  schemas boolean;
BEGIN
  IF show_config_by_name_missing_ok('pytest_dsql_engine.renewing', true) = 'on' THEN
    RETURN;
  END IF;
  IF TG_TAG IN ('GRANT', 'REVOKE') THEN
    PERFORM pytest_dsql_engine_sandbox.copy_all_privileges();
    PERFORM pytest_dsql_engine_sandbox.renew(VARIADIC '{}');
    RETURN;
  END IF;
  SELECT array_agg(DISTINCT COALESCE(i.indrelid, k.conrelid, c.objid))
      FILTER (WHERE c.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass) AND c.object_type NOT IN ('view', 'sequence')),
    bool_or(c.object_type = 'view'), bool_or(c.object_type = 'schema' AND c.command_tag = 'ALTER SCHEMA')
  INTO changed, views, schemas
  FROM pg_event_trigger_ddl_commands() AS c
  LEFT JOIN pytest_dsql_engine_index AS i ON c.classid = 'pg_class'::regclass AND i.indexrelid = c.objid
  LEFT JOIN pg_constraint AS k ON c.classid = 'pg_constraint'::regclass AND k.oid = c.objid
  WHERE c.objid IS NOT NULL;
  IF TG_TAG = 'CREATE SCHEMA' THEN
    PERFORM pytest_dsql_engine_sandbox.prepare(ARRAY(
      SELECT n.nspname FROM pg_event_trigger_ddl_commands() AS c JOIN pg_namespace AS n ON n.oid = c.objid
      WHERE c.classid = 'pg_namespace'::regclass));
  END IF;
  IF schemas THEN
    changed := ARRAY(SELECT relid FROM pytest_dsql_engine_sandbox.helper);
  END IF;
  IF changed IS NOT NULL OR views THEN
    PERFORM pytest_dsql_engine_sandbox.renew(VARIADIC COALESCE(changed, '{}'));
  END IF;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.follow_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  relations oid[];
  indexes_ oid[];
  schemas text[];
  changed oid[];
BEGIN
  IF show_config_by_name_missing_ok('pytest_dsql_engine.renewing', true) = 'on' THEN
    RETURN;
  END IF;
  SELECT COALESCE(array_agg(objid) FILTER (WHERE object_type IN ('table', 'view')), '{}'),
    COALESCE(array_agg(objid) FILTER (WHERE object_type = 'index'), '{}'),
    COALESCE(array_agg(object_name) FILTER (WHERE object_type = 'schema'), '{}')
  INTO relations, indexes_, schemas
  FROM pg_event_trigger_dropped_objects();
  changed := ARRAY(
    SELECT relid FROM pytest_dsql_engine_sandbox.helper
    WHERE (neighbours && relations OR indexes && indexes_) AND relid <> ALL (relations));
  IF relations <> '{}' OR schemas <> '{}' THEN
    PERFORM pytest_dsql_engine_sandbox.forget(relations, schemas);
  END IF;
  IF changed <> '{}' THEN
    PERFORM pytest_dsql_engine_sandbox.renew(VARIADIC changed);
  END IF;
END
$$;

SELECT pytest_dsql_engine_sandbox.make_schemas('public');

-- PostgreSQL takes event triggers by their names: those that count rows have been made before.
CREATE EVENT TRIGGER pytest_dsql_engine_sandbox ON ddl_command_end EXECUTE FUNCTION pytest_dsql_engine_sandbox.follow();
CREATE EVENT TRIGGER pytest_dsql_engine_sandbox_drop ON sql_drop EXECUTE FUNCTION pytest_dsql_engine_sandbox.follow_drop();
