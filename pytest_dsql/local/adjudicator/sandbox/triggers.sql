-- The triggers on clients' tables: they tell the gateway, by notices, which keys a statement has freed, and which keys of
-- other tables it relies on. PostgreSQL forgets both with the transaction that did it, a snapshot that is older doesn't.

CREATE FUNCTION pytest_dsql_engine_sandbox.tell(name text, kind text, keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF keys IS NOT NULL THEN
    RAISE NOTICE USING MESSAGE = 'pytest_dsql_engine keys',
      DETAIL = pg_catalog.json_build_object('table', name, kind, keys);
  END IF;
END
$$;

-- The keys of the rows of `source`, which is a FROM clause that calls the row `r`.
CREATE FUNCTION pytest_dsql_engine_sandbox.keys_of(keys text[], source text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (SELECT format('SELECT k.key FROM %s, LATERAL (VALUES %s) AS k(key) WHERE k.key IS NOT NULL', source,
    (SELECT string_agg('(' || key || ')', ', ') FROM unnest(keys) AS key)));
END
$$;

-- The functions that name the keys of a table's rows, as texts.
CREATE FUNCTION pytest_dsql_engine_sandbox.reporting(relation oid, schema text, name text, overlay_name text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  functions text := '';
  own text[];
  shared text[];
  told text := $t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.{kind}_{relid}() RETURNS trigger LANGUAGE plpgsql AS $pytest_dsql_engine$
BEGIN
  IF TG_LEVEL = 'STATEMENT' THEN
    PERFORM pytest_dsql_engine_sandbox.tell({name}, '{kind}', ARRAY({all}));
  ELSE
    PERFORM pytest_dsql_engine_sandbox.tell({name}, '{kind}', ARRAY({one}));{kept}
  END IF;
  RETURN NULL;
END
$pytest_dsql_engine$;
$t$;
BEGIN
  SELECT array_agg(pytest_dsql_engine_sandbox.key_of(u.index, 'r', u.columns)) INTO own
  FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u WHERE u.columns IS NOT NULL AND u.predicate IS NULL;
  SELECT array_agg(pytest_dsql_engine_sandbox.key_of(i.indexrelid, 'r', ARRAY(
    SELECT f.columns[array_position((f.con).confkey, i.indkey[n])] FROM generate_series(0, i.indnkeyatts - 1) AS n)))
  INTO shared
  FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) AS f
  JOIN pytest_dsql_engine_index AS i ON i.indexrelid = (f.con).conindid;
  IF own IS NOT NULL THEN
    functions := pytest_dsql_engine_sandbox.fill(told, 'kind', 'freed', 'relid', relation::text, 'name', quote_literal(name),
      'all', pytest_dsql_engine_sandbox.keys_of(own, 'was AS r'),
      'one', pytest_dsql_engine_sandbox.keys_of(own, '(SELECT OLD.*) AS r')
        || ' EXCEPT ' || pytest_dsql_engine_sandbox.keys_of(own, '(SELECT NEW.*) AS r'),
      -- Who changes one of a row's keys holds the row, and with it the keys that stay.
      'kept', CASE WHEN cardinality(own) > 1 THEN pytest_dsql_engine_sandbox.fill($t$
    PERFORM pytest_dsql_engine_sandbox.tell({name}, 'locked', ARRAY({old} INTERSECT {new}));$t$, 'name', quote_literal(name),
        'old', pytest_dsql_engine_sandbox.keys_of(own, '(SELECT OLD.*) AS r'),
        'new', pytest_dsql_engine_sandbox.keys_of(own, '(SELECT NEW.*) AS r')) END)
      || pytest_dsql_engine_sandbox.fill($t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.keys_{relid}() RETURNS SETOF text
LANGUAGE sql STABLE AS $pytest_dsql_engine$
  {keys}
$pytest_dsql_engine$;
$t$,
        'relid', relation::text, 'keys', pytest_dsql_engine_sandbox.keys_of(own, overlay_name || ' AS r'));
  END IF;
  IF shared IS NOT NULL THEN
    functions := functions || pytest_dsql_engine_sandbox.fill(told, 'kind', 'shared', 'relid', relation::text,
      'name', quote_literal(name), 'all', pytest_dsql_engine_sandbox.keys_of(shared, 'became AS r'),
      'one', pytest_dsql_engine_sandbox.keys_of(shared, '(SELECT NEW.*) AS r'),
      -- A parent that the row referred to before may be removed now, as far as PostgreSQL looks.
      'kept', format($t$
    PERFORM pytest_dsql_engine_sandbox.tell(%L, 'left', ARRAY[]::pg_catalog.text[]);$t$, name));
  END IF;
  RETURN functions;
END
$$;

-- Makes the triggers of a client's table for the columns of its keys and foreign keys. Their functions say nothing until
-- the table's helpers are made: that can be done without a lock on the table, this can't.
CREATE FUNCTION pytest_dsql_engine_sandbox.watch(relation oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  place text;
  keyed text[];
  referring text[];
  present pytest_dsql_engine_sandbox.watched;
BEGIN
  SELECT format('%I.%I', nspname, relname),
    (SELECT array_agg(DISTINCT attname::text ORDER BY attname::text) FROM pytest_dsql_engine_index AS i
     JOIN pg_attribute AS a ON attrelid = indrelid AND attnum = ANY ((indkey::smallint[])[0:indnkeyatts - 1])
     WHERE indrelid = relation AND indisunique AND indislive AND indexprs IS NULL AND indpred IS NULL),
    (SELECT array_agg(DISTINCT attname::text ORDER BY attname::text) FROM pg_constraint AS k
     JOIN pg_attribute AS a ON attrelid = conrelid AND attnum = ANY (conkey) WHERE conrelid = relation AND contype = 'f')
  INTO place, keyed, referring
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
  WHERE c.oid = relation AND relkind = 'r' AND pytest_dsql_engine_sandbox.is_clients(nspname);
  IF place IS NULL THEN
    RETURN;
  END IF;
  SELECT * INTO present FROM pytest_dsql_engine_sandbox.watched WHERE relid = relation;
  IF FOUND AND (present.keyed, present.referring) IS NOT DISTINCT FROM (keyed::text, referring::text) THEN
    RETURN;
  END IF;
  PERFORM pytest_dsql_engine_sandbox.watch_columns(relation, place, 'freed', 'DELETE', 'OLD TABLE AS was', keyed);
  PERFORM pytest_dsql_engine_sandbox.watch_columns(relation, place, 'shared', 'INSERT', 'NEW TABLE AS became', referring);
  -- Nothing shows them, and they keep no column from being dropped.
  UPDATE pytest_dsql_engine_trigger SET tgisinternal = true
  WHERE tgrelid = relation AND starts_with(tgname::text, 'pytest_dsql_engine') AND NOT tgisinternal;
  DELETE FROM pg_depend WHERE classid = 2620 AND deptype = 'n' -- pg_trigger, whose name belongs to a view
    AND objid IN (SELECT oid FROM pytest_dsql_engine_trigger WHERE tgrelid = relation AND starts_with(tgname::text, 'pytest_dsql_engine'));
  INSERT INTO pytest_dsql_engine_sandbox.watched VALUES (relation, keyed::text, referring::text)
  ON CONFLICT (relid) DO UPDATE SET keyed = excluded.keyed, referring = excluded.referring;
END
$$;

CREATE FUNCTION pytest_dsql_engine_sandbox.watch_columns(
  relation oid, place text, kind text, event text, transition text, columns text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  function_ text := format('pytest_dsql_engine_sandbox.%s_%s', kind, relation);
BEGIN
  EXECUTE format('DROP TRIGGER IF EXISTS pytest_dsql_engine_%1$s ON %2$s; DROP TRIGGER IF EXISTS pytest_dsql_engine_re%1$s ON %2$s', kind, place);
  IF columns IS NULL THEN
    RETURN;
  END IF;
  IF to_regproc(function_) IS NULL THEN
    EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L', function_, 'BEGIN RETURN NULL; END');
  END IF;
  EXECUTE format('CREATE TRIGGER pytest_dsql_engine_%1$s AFTER %2$s ON %3$s REFERENCING %4$s FOR EACH STATEMENT EXECUTE FUNCTION %5$s();'
    'CREATE TRIGGER pytest_dsql_engine_re%1$s AFTER UPDATE OF %6$s ON %3$s FOR EACH ROW'
    ' WHEN (ROW(%7$s) IS DISTINCT FROM ROW(%8$s)) EXECUTE FUNCTION %5$s()',
    kind, event, place, transition, function_, pytest_dsql_engine_sandbox.each('{c}', columns, ', '),
    pytest_dsql_engine_sandbox.each('OLD.{c}', columns, ', '), pytest_dsql_engine_sandbox.each('NEW.{c}', columns, ', '));
END
$$;
