-- What a transaction has written is counted by triggers on every table of the clients, in one setting that PostgreSQL
-- itself sets back when the transaction ends, or is rolled back to a savepoint: rows times 2^36, plus bytes. So whatever
-- is undone is not counted, and what a cascade or a WITH query writes is.
--
-- Each table has functions of its own, whose expressions are made for its columns: that costs a statement about 10 us
-- and a row 3 us, half of what conditions on the triggers, or sets of changed rows, cost (measured, PostgreSQL 16).
CREATE SCHEMA pytest_dsql_engine_limits;
GRANT USAGE ON SCHEMA pytest_dsql_engine_limits TO PUBLIC;

-- The limits. PostgreSQL puts their values in place of the calls, and forgets its plans when one is replaced, so that a
-- limit costs nothing, and another value holds from the next statement on. The engine replaces them (`limits_sql`).
CREATE FUNCTION pytest_dsql_engine_limits.transaction_rows() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 3000::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.transaction_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 10485760::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.value_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1048576::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.row_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 2097152::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.key_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1981::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.declared_key_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 2000::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.storage_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 10995116277760::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.compresses_texts() RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION pytest_dsql_engine_limits.schemas() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 10::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.tables() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1000::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.views() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 5000::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.sequences() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 5000::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.columns() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 256::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.indexes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 24::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.statistics() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 5::bigint';
CREATE FUNCTION pytest_dsql_engine_limits.view_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 524288::bigint';

CREATE FUNCTION pytest_dsql_engine_limits.refuse(message text, detail text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF detail IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded', MESSAGE = message;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded', MESSAGE = message, DETAIL = detail;
END
$$;

-- AWS user guide, "DDL and distributed transactions in Aurora DSQL"; the text as seen on clusters in September 2026.
CREATE FUNCTION pytest_dsql_engine_limits.refuse_mixture() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING
    ERRCODE = 'feature_not_supported', MESSAGE = 'ddl and dml are not supported in the same transaction';
END
$$;

-- Rows and bytes that the transaction has written, and the same after more of them.

CREATE FUNCTION pytest_dsql_engine_limits.written() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT COALESCE(
    NULLIF(pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.written', true), ''), '0')::pg_catalog.int8
$$;

-- Of a row too many: one of too many, or one that stands beside DDL (`beside.sql`).
CREATE FUNCTION pytest_dsql_engine_limits.refuse_row() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF pytest_dsql_engine_limits.written() >= 4611686018427387904 THEN
    PERFORM pytest_dsql_engine_limits.refuse_mixture();
  END IF;
  PERFORM pytest_dsql_engine_limits.refuse('transaction row limit exceeded');
END
$$;

-- For what is written past the tables' own triggers: one row, and its bytes. Raises the error of the crossed limit.
CREATE FUNCTION pytest_dsql_engine_limits.count_row(bytes bigint DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF pg_catalog.set_config_by_name(
    'pytest_dsql_engine.written',
    (pytest_dsql_engine_limits.written() + 68719476736 + bytes)::pg_catalog.text, true)::pg_catalog.int8 / 68719476736
    > pytest_dsql_engine_limits.transaction_rows()
  THEN
    PERFORM pytest_dsql_engine_limits.refuse_row();
  END IF;
END
$$;

-- Around updates of the engine's own, such as those that lock rows: what happens in between counts for nothing.

CREATE FUNCTION pytest_dsql_engine_limits.pause() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.set_config_by_name(
    'pytest_dsql_engine.written_before', pytest_dsql_engine_limits.written()::pg_catalog.text, true);
  PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.written', '-4611686018427387904', true);
END
$$;

CREATE FUNCTION pytest_dsql_engine_limits.go_on() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.written',
    pg_catalog.show_config_by_name('pytest_dsql_engine.written_before'), true);
END
$$;

-- RESET ALL, without what is counted.
CREATE PROCEDURE pytest_dsql_engine_limits.reset_all() LANGUAGE plpgsql AS $$
DECLARE
  written text := pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.written', true);
  oversized text := pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.oversized', true);
BEGIN
  RESET ALL;
  IF written <> '' THEN
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.written', written, true);
    PERFORM pg_catalog.set_config_by_name('pytest_dsql_engine.oversized', oversized, true);
  END IF;
END
$$;

-- A transaction that is too large fails at its COMMIT: a row of this table, written once, has a trigger that waits for it.

CREATE UNLOGGED TABLE pytest_dsql_engine_limits.oversized ();

CREATE FUNCTION pytest_dsql_engine_limits.refuse_size() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  bytes bigint := pytest_dsql_engine_limits.written() % 68719476736;
  most numeric := pg_catalog.trim_scale(pg_catalog.round(pytest_dsql_engine_limits.transaction_bytes() / 1048576.0, 3));
BEGIN
  IF bytes > pytest_dsql_engine_limits.transaction_bytes() THEN
    PERFORM pytest_dsql_engine_limits.refuse(
      pg_catalog.format('transaction size limit %smb exceeded', most),
      pg_catalog.format('Current transaction size %smb > %smb', pg_catalog.ceil(bytes / 1048576.0), most));
  END IF;
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER pytest_dsql_engine_size AFTER INSERT ON pytest_dsql_engine_limits.oversized
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pytest_dsql_engine_limits.refuse_size();

CREATE FUNCTION pytest_dsql_engine_limits.too_large() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF COALESCE(show_config_by_name_missing_ok('pytest_dsql_engine.oversized', true), '') = '' THEN
    PERFORM set_config_by_name('pytest_dsql_engine.oversized', 'on', true);
    INSERT INTO pytest_dsql_engine_limits.oversized DEFAULT VALUES;
  END IF;
END
$$;

-- Asked with a transaction's first row, and only where the limit is not DSQL's: PostgreSQL has to look at every file.
CREATE FUNCTION pytest_dsql_engine_limits.check_storage() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF pg_database_size('postgres') > pytest_dsql_engine_limits.storage_bytes() THEN
    RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'Current cluster size exceeds cluster size limit.';
  END IF;
END
$$;

CREATE FUNCTION pytest_dsql_engine_limits.count_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Deleted rows count as rows, not as bytes (seen on clusters in 2026).
  IF pg_catalog.set_config_by_name(
    'pytest_dsql_engine.written',
    (COALESCE(NULLIF(pg_catalog.show_config_by_name_missing_ok('pytest_dsql_engine.written', true), ''), '0')::pg_catalog.int8
      + 68719476736)::pg_catalog.text, true)::pg_catalog.int8 / 68719476736
    > pytest_dsql_engine_limits.transaction_rows()
  THEN
    PERFORM pytest_dsql_engine_limits.refuse_row();
  END IF;
  RETURN NULL;
END
$$;
