-- What all sandboxes share: which rows are gone, what is still to be checked, entering; and what is known of helpers.
-- Everything here is the superuser's, in schemas that no client sees. What sandboxes write here is always rolled back.
-- Some catalogs are asked by their names on this server (`pytest_dsql_engine_index`): clients' ones show less.

CREATE SCHEMA pytest_dsql_engine_sandbox;
GRANT USAGE ON SCHEMA pytest_dsql_engine_sandbox TO PUBLIC;

-- The rows of clients' tables that are not there for the sandbox: removed, or replaced by a row of the overlay. Rows are
-- known by their place: as long as a snapshot sees a row, it stays where it is.
--
-- Plans are made while it is empty and kept while it grows, so PostgreSQL has to think it large, and full of one table's
-- rows: then single rows are looked up by the index, and all of them are hashed only where a whole table is read. It
-- does as long as nobody vacuums it (a table that never was counts as ten pages at least), so `tidy` empties it.
CREATE UNLOGGED TABLE pytest_dsql_engine_sandbox.gone (relid oid NOT NULL, id tid NOT NULL) WITH (autovacuum_enabled = off);
CREATE INDEX ON pytest_dsql_engine_sandbox.gone (relid, id);
GRANT SELECT ON pytest_dsql_engine_sandbox.gone TO PUBLIC;
INSERT INTO pytest_dsql_engine_sandbox.gone SELECT 0, ('(' || g || ',1)')::tid FROM generate_series(1, 2000) AS g;
ANALYZE pytest_dsql_engine_sandbox.gone;
TRUNCATE pytest_dsql_engine_sandbox.gone;
UPDATE pg_statistic SET stakind1 = 0, stakind2 = 0, stakind3 = 0, stakind4 = 0, stakind5 = 0,
  stanumbers1 = NULL, stanumbers2 = NULL, stanumbers3 = NULL, stanumbers4 = NULL, stanumbers5 = NULL,
  stavalues1 = NULL, stavalues2 = NULL, stavalues3 = NULL, stavalues4 = NULL, stavalues5 = NULL
WHERE starelid = 'pytest_dsql_engine_sandbox.gone'::regclass;
UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid = 'pytest_dsql_engine_sandbox.gone'::regclass;

-- What a statement has done that concerns foreign keys, in its order. As PostgreSQL does it, that is looked at when the
-- statement has ended, and what this causes is queued behind it. What was looked at stays: the setting
-- `pytest_dsql_engine.seen` says up to where that is, and `pytest_dsql_engine.happened` whether there is more.
CREATE UNLOGGED TABLE pytest_dsql_engine_sandbox.event (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  relid oid NOT NULL,
  was text, -- the row before; null: inserted
  now text, -- the row after; null: deleted
  child boolean NOT NULL -- whether a row that it references was missing
) WITH (autovacuum_enabled = off);

-- The helpers there are, with the texts that made them: what has not changed is not made again.
CREATE TABLE pytest_dsql_engine_sandbox.helper (
  relid oid PRIMARY KEY,
  place text NOT NULL, -- schema and name of the client's table
  view_name text NOT NULL,
  overlay_name text,
  overlay_text text,
  view_text text NOT NULL,
  functions text,
  neighbours oid[] NOT NULL, -- the tables that it is bound to by foreign keys
  indexes oid[] NOT NULL, -- its unique indexes
  keys jsonb -- by index: the expression of a key of a row called `{row}`
);

-- What a client's statement has changed since helpers were last looked at; 0: something else than one table. Rows may be
-- there twice, so that nobody waits for anybody.
CREATE TABLE pytest_dsql_engine_sandbox.stale (relid oid NOT NULL);

-- The columns that the triggers on a client's table watch.
CREATE TABLE pytest_dsql_engine_sandbox.watched (relid oid PRIMARY KEY, keyed text, referring text);

CREATE FUNCTION pytest_dsql_engine_sandbox.view_schema(schema name) RETURNS name LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('pytest_dsql_engine_v_' || pg_catalog.md5(schema::text))::name $$;

CREATE FUNCTION pytest_dsql_engine_sandbox.overlay_schema(schema name) RETURNS name LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('pytest_dsql_engine_o_' || pg_catalog.md5(schema::text))::name $$;

-- Where the views are into which rows are proposed that an INSERT with ON CONFLICT might insert.
CREATE FUNCTION pytest_dsql_engine_sandbox.stage_schema(schema name) RETURNS name LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('pytest_dsql_engine_s_' || pg_catalog.md5(schema::text))::name $$;

-- Whether a proposed row is the first with its key; fails as PostgreSQL does if it isn't.
CREATE FUNCTION pytest_dsql_engine_sandbox.only_once(number bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF number > 1 THEN
    RAISE EXCEPTION USING ERRCODE = 'cardinality_violation',
      MESSAGE = 'ON CONFLICT DO UPDATE command cannot affect row a second time',
      HINT = 'Ensure that no rows proposed for insertion within the same command have duplicate constrained values.';
  END IF;
  RETURN true;
END
$$;

-- In place of what can't be done in the sandbox: the transaction has lost.
CREATE FUNCTION pytest_dsql_engine_sandbox.give_up() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'change conflicts with another transaction (OC000)';
END
$$;

-- Whether a deferrable constraint is checked at once: what SET CONSTRAINTS said last, in this transaction. What is
-- deferred is checked by PostgreSQL itself when the transaction commits, outside of the sandbox.
CREATE FUNCTION pytest_dsql_engine_sandbox.is_immediate(name text, by_default boolean) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
  said pg_catalog.jsonb := NULLIF(pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.constraints', true), '');
BEGIN
  RETURN COALESCE((said->>name)::pg_catalog.bool, (said->>'')::pg_catalog.bool, by_default);
END
$$;

-- SET CONSTRAINTS; no names: all.
CREATE FUNCTION pytest_dsql_engine_sandbox.set_constraints(names text[], immediate boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  said jsonb := COALESCE(NULLIF(show_config_by_name_missing_ok('pytest_dsql_engine.constraints', true), '')::jsonb, '{}');
BEGIN
  IF names = '{}' THEN
    said := jsonb_build_object('', immediate);
  ELSE
    said := said || (SELECT jsonb_object_agg(n, immediate) FROM unnest(names) AS n);
  END IF;
  PERFORM set_config_by_name('pytest_dsql_engine.constraints', said::text, true);
END
$$;

-- Runs as the client's role: the path is the session's own, with each schema's views before the schema.
CREATE FUNCTION pytest_dsql_engine_sandbox.enter() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  written text := pg_catalog.show_config_by_name('search_path');
BEGIN
  -- It may have been entered before, and nothing has changed since.
  IF written IS DISTINCT FROM pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.entered', true) THEN
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.entered', pg_catalog.set_config_by_name('search_path', (
      SELECT COALESCE(pg_catalog.string_agg(
        CASE WHEN schema LIKE 'pg\_%' OR schema IN ('sys', 'information_schema') THEN '' ELSE
          pytest_dsql_engine_sandbox.view_schema(schema)::text || ', ' END || pg_catalog.quote_ident(schema), ', ' ORDER BY place), '""')
      FROM pg_catalog.unnest(pg_catalog.pytest_dsql_engine_current_schemas(false)) WITH ORDINALITY AS path(schema, place)
      WHERE NOT pg_catalog.starts_with(schema::text, 'pytest_dsql_engine')), true), true);
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.search_path', '=' || written, true);
  END IF;
  PERFORM pg_catalog.set_config_by_name('lock_timeout', '0', true);
END
$$;

-- Looks at what the statement has done, until nothing follows from it any more.
CREATE FUNCTION pytest_dsql_engine_sandbox.follow_events() RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  seen pg_catalog.int8;
  until pg_catalog.int8;
  relation oid;
BEGIN
  WHILE pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.happened', true) = 'on' LOOP
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.happened', '', true);
    seen := COALESCE(NULLIF(pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.seen', true), ''), '0');
    until := pg_catalog.nextval('pytest_dsql_engine_sandbox.event_n_seq');
    FOR relation IN
      SELECT e.relid FROM pytest_dsql_engine_sandbox.event AS e
      WHERE e.n OPERATOR(pg_catalog.>) seen AND e.n OPERATOR(pg_catalog.<) until
      GROUP BY e.relid ORDER BY pg_catalog.min(e.n)
    LOOP
      EXECUTE 'SELECT pytest_dsql_engine_sandbox.events_' || relation || '($1, $2)' USING seen, until;
    END LOOP;
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.seen', until::pg_catalog.text, true);
  END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.follow_events FROM PUBLIC;

-- What happens inside of triggers is left to the statement that caused it.
CREATE FUNCTION pytest_dsql_engine_sandbox.after_statement() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.happened', true) = 'on' AND pg_catalog.pg_trigger_depth() = 1 THEN
    PERFORM pytest_dsql_engine_sandbox.follow_events();
  END IF;
  RETURN NULL;
END
$$;

-- Makes room: what sandboxes leave behind is nobody's, and in the way of the next ones. While nobody is in one.
CREATE FUNCTION pytest_dsql_engine_sandbox.tidy(most_bytes bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' SET client_min_messages = warning AS $$
DECLARE
  relation regclass;
BEGIN
  FOR relation IN
    SELECT unnest(ARRAY['pytest_dsql_engine_sandbox.gone', 'pytest_dsql_engine_sandbox.event'])::regclass
    UNION ALL SELECT to_regclass(overlay_name) FROM pytest_dsql_engine_sandbox.helper WHERE overlay_name IS NOT NULL
  LOOP
    IF pg_total_relation_size(relation) > most_bytes THEN
      BEGIN
        EXECUTE 'TRUNCATE ' || relation;
      EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN;
      END;
    END IF;
  END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION pytest_dsql_engine_sandbox.tidy FROM PUBLIC;

-- The keys of the rows that the sandbox has written in these tables: of new rows, and of changed ones, which ON CONFLICT
-- would insert again where they are gone. A key is the OID of its index and the values, in a form that is equal where the
-- values are.
CREATE FUNCTION pytest_dsql_engine_sandbox.written_keys(relations oid[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  relation oid;
BEGIN
  FOREACH relation IN ARRAY relations LOOP
    IF to_regproc('pytest_dsql_engine_sandbox.keys_' || relation) IS NOT NULL THEN
      RETURN QUERY EXECUTE 'SELECT * FROM pytest_dsql_engine_sandbox.keys_' || relation || '()';
    END IF;
  END LOOP;
END
$$;

