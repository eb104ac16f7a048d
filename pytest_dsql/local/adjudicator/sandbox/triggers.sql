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

-- The functions that name keys, and what makes the triggers; both null where there are none.
CREATE FUNCTION pytest_dsql_engine_sandbox.reporting(
  relation oid, schema text, name text, overlay_name text, OUT functions text, OUT triggers text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  own text[];
  own_columns text[];
  shared text[];
  shared_columns text[];
  place text := format('%I.%I', schema, name);
  -- From a function's kind and the key expressions: the function of a trigger for statements and for rows.
  told text := $t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.{kind}_{relid}() RETURNS trigger LANGUAGE plpgsql AS $pytest_dsql_engine$
BEGIN
  IF TG_LEVEL = 'STATEMENT' THEN
    PERFORM pytest_dsql_engine_sandbox.tell({name}, '{kind}', ARRAY({all}));
  ELSE
    PERFORM pytest_dsql_engine_sandbox.tell({name}, '{kind}', ARRAY({one}));
  END IF;
  RETURN NULL;
END
$pytest_dsql_engine$;
$t$;
BEGIN
  SELECT array_agg(pytest_dsql_engine_sandbox.key_of(u.index, 'r', u.columns)) INTO own
  FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u WHERE u.columns IS NOT NULL AND u.predicate IS NULL;
  own_columns := ARRAY(SELECT DISTINCT c FROM pytest_dsql_engine_sandbox.unique_indexes(relation) AS u, unnest(u.columns) AS c
    WHERE u.predicate IS NULL ORDER BY c);
  SELECT array_agg(pytest_dsql_engine_sandbox.key_of(i.indexrelid, 'r', ARRAY(
    SELECT f.columns[array_position((f.con).confkey, i.indkey[n])] FROM generate_series(0, i.indnkeyatts - 1) AS n)))
  INTO shared
  FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) AS f JOIN pytest_dsql_engine_index AS i ON i.indexrelid = (f.con).conindid;
  shared_columns := ARRAY(SELECT DISTINCT c FROM pytest_dsql_engine_sandbox.foreign_keys(relation, false) AS f, unnest(f.columns) AS c ORDER BY c);
  IF own IS NOT NULL THEN
    functions := pytest_dsql_engine_sandbox.fill(told, 'kind', 'freed', 'relid', relation::text, 'name', quote_literal(name),
      'all', pytest_dsql_engine_sandbox.keys_of(own, 'was AS r'),
      'one', pytest_dsql_engine_sandbox.keys_of(own, '(SELECT OLD.*) AS r') || ' EXCEPT ' || pytest_dsql_engine_sandbox.keys_of(own, '(SELECT NEW.*) AS r'))
      || pytest_dsql_engine_sandbox.fill($t$CREATE OR REPLACE FUNCTION pytest_dsql_engine_sandbox.keys_{relid}() RETURNS SETOF text
LANGUAGE sql STABLE AS $pytest_dsql_engine$
  {new} EXCEPT {old}
$pytest_dsql_engine$;
$t$,
        'relid', relation::text, 'new', pytest_dsql_engine_sandbox.keys_of(own, overlay_name || ' AS r'),
        'old', pytest_dsql_engine_sandbox.keys_of(own, format('%s AS r JOIN pytest_dsql_engine_sandbox.gone AS g ON g.relid OPERATOR(pg_catalog.=) %s'
          ' AND g.id OPERATOR(pg_catalog.=) r.ctid', place, relation)));
    triggers := pytest_dsql_engine_sandbox.fill($t$
CREATE TRIGGER pytest_dsql_engine_deleted AFTER DELETE ON {place} REFERENCING OLD TABLE AS was
  FOR EACH STATEMENT EXECUTE FUNCTION pytest_dsql_engine_sandbox.freed_{relid}();
CREATE TRIGGER pytest_dsql_engine_rekeyed AFTER UPDATE OF {columns} ON {place}
  FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) EXECUTE FUNCTION pytest_dsql_engine_sandbox.freed_{relid}();
$t$,
      'place', place, 'relid', relation::text, 'columns', pytest_dsql_engine_sandbox.each('{c}', own_columns, ', '),
      'old', pytest_dsql_engine_sandbox.each('OLD.{c}', own_columns, ', '), 'new', pytest_dsql_engine_sandbox.each('NEW.{c}', own_columns, ', '));
  END IF;
  IF shared IS NOT NULL THEN
    functions := concat(functions, pytest_dsql_engine_sandbox.fill(told, 'kind', 'shared', 'relid', relation::text, 'name', quote_literal(name),
      'all', pytest_dsql_engine_sandbox.keys_of(shared, 'became AS r'), 'one', pytest_dsql_engine_sandbox.keys_of(shared, '(SELECT NEW.*) AS r')));
    triggers := concat(triggers, pytest_dsql_engine_sandbox.fill($t$
CREATE TRIGGER pytest_dsql_engine_referring AFTER INSERT ON {place} REFERENCING NEW TABLE AS became
  FOR EACH STATEMENT EXECUTE FUNCTION pytest_dsql_engine_sandbox.shared_{relid}();
CREATE TRIGGER pytest_dsql_engine_rereferring AFTER UPDATE OF {columns} ON {place}
  FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) EXECUTE FUNCTION pytest_dsql_engine_sandbox.shared_{relid}();
$t$,
      'place', place, 'relid', relation::text, 'columns', pytest_dsql_engine_sandbox.each('{c}', shared_columns, ', '),
      'old', pytest_dsql_engine_sandbox.each('OLD.{c}', shared_columns, ', '), 'new', pytest_dsql_engine_sandbox.each('NEW.{c}', shared_columns, ', ')));
  END IF;
END
$$;
