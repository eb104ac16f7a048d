-- Statements that have to give the same in the sandbox as on the tables, one in each line.
-- Reading.
SELECT * FROM account ORDER BY id
SELECT a.owner, sum(e.amount) FROM account a JOIN entry e ON e.account = a.id GROUP BY a.id
SELECT account.owner FROM public.account WHERE public.account.id = 1
SELECT count(*) FROM account, other.account AS o
WITH account AS (SELECT 1 AS id) SELECT * FROM account
SELECT * FROM rich
SELECT * FROM account WHERE id = 1 FOR UPDATE
SELECT a.id FROM account a LEFT JOIN entry e ON e.account = a.id WHERE a.id < 3 FOR UPDATE OF a NOWAIT
SELECT id FROM account ORDER BY 1 DESC LIMIT 2 FOR UPDATE SKIP LOCKED
SELECT id FROM account FOR KEY SHARE
WITH x AS (SELECT id FROM account WHERE id = 1 FOR UPDATE) SELECT * FROM x
SELECT * FROM missing
SELECT missing FROM account
-- INSERT.
INSERT INTO account (id, owner) VALUES (6, 'six') RETURNING *
INSERT INTO account VALUES (6, 'six'), (7, 'seven', 'e7', 3)
INSERT INTO public.account AS x (id, owner) VALUES (6, 'six') RETURNING x.id, twice AS t, x.balance
INSERT INTO account (id, owner) SELECT id + 10, owner FROM account WHERE id < 3 RETURNING id
INSERT INTO account (id, owner) VALUES (1, 'again')
INSERT INTO account (id, owner, email) VALUES (6, 'six', 'e1')
INSERT INTO account (id, owner, email) VALUES (6, 'six', 'far too long for its column')
INSERT INTO account (id) VALUES (6)
INSERT INTO account (owner) VALUES ('none')
INSERT INTO account (id, owner, balance) VALUES (6, 'six', -1)
INSERT INTO account (id, owner, code) VALUES (6, 'six', 'a') RETURNING code, length(code)
INSERT INTO account (id, owner, balance) VALUES (6, 'six', DEFAULT) RETURNING balance
INSERT INTO account (id, owner, missing) VALUES (6, 'six', DEFAULT)
INSERT INTO account (id, owner) VALUES (6, 'a'), (6, 'b')
INSERT INTO entry (account, amount) VALUES (1, 7), (NULL, 8) RETURNING account, amount, note
INSERT INTO entry (account, amount) VALUES (77, 7)
INSERT INTO entry (account, amount, note) VALUES (1, 101, 'X'), (1, 102, 'x')
INSERT INTO entry (account, amount, note) VALUES (1, 101, 'X'), (1, 1, 'x')
INSERT INTO pair VALUES (1, 'x', 9)
INSERT INTO pair VALUES (9, 'x', NULL)
INSERT INTO pair VALUES (9, 'x', 9), (9, 'y', 10)
INSERT INTO node VALUES (10, 11), (11, 10)
INSERT INTO node VALUES (10, 10)
INSERT INTO node VALUES (10, 12), (11, 10)
INSERT INTO full_match VALUES (2, 1, NULL)
INSERT INTO full_match VALUES (2, NULL, NULL), (3, 1, 'x')
INSERT INTO full_match VALUES (2, 1, 'none')
INSERT INTO domains VALUES (0, 'a')
INSERT INTO domains VALUES (2, 'abcd')
INSERT INTO always (v) VALUES ('a') RETURNING v
INSERT INTO always DEFAULT VALUES
INSERT INTO always VALUES (7, 'b')
INSERT INTO always VALUES (DEFAULT, 'b') RETURNING v
INSERT INTO always (id) SELECT 1
INSERT INTO account (id, owner, twice) VALUES (6, 'six', 12)
INSERT INTO account (id, owner, twice) VALUES (6, 'six', DEFAULT) RETURNING twice
UPDATE always SET id = 3
INSERT INTO always OVERRIDING SYSTEM VALUE VALUES (1000, 'b') RETURNING *
INSERT INTO rich (id, owner, balance) VALUES (8, 'eight', 80) RETURNING *
INSERT INTO statement VALUES ('x', 1)
INSERT INTO other.account VALUES (2, 'b') RETURNING *
INSERT INTO "Weird ""Name"".x" VALUES (2, 'a')
INSERT INTO public."Weird ""Name"".x" VALUES (2, 'b') RETURNING "select", "Weird ""Name"".x"."Key"
WITH moved AS (DELETE FROM entry WHERE account = 1 RETURNING amount) INSERT INTO plain SELECT amount FROM moved RETURNING a
-- ON CONFLICT.
INSERT INTO account (id, owner) VALUES (1, 'again'), (6, 'six') ON CONFLICT DO NOTHING RETURNING id
INSERT INTO account (id, owner) VALUES (6, 'six'), (6, 'again') ON CONFLICT (id) DO NOTHING
INSERT INTO account (id, owner, email) VALUES (6, 'six', 'e1') ON CONFLICT (id) DO NOTHING
INSERT INTO account (id, owner, email) VALUES (6, 'six', 'e1') ON CONFLICT ON CONSTRAINT account_email_key DO NOTHING
INSERT INTO account AS a (id, owner) VALUES (1, 'new'), (6, 'six') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner || a.owner RETURNING *
INSERT INTO account (id, owner) VALUES (1, 'new') ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance
INSERT INTO account (id, owner) VALUES (1, 'new'), (2, 'new') ON CONFLICT (id) DO UPDATE SET owner = 'x' WHERE account.id = 1 RETURNING id, owner
INSERT INTO account (id, owner) VALUES (1, 'a'), (1, 'b') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner
INSERT INTO account (id, owner) VALUES (9, 'a'), (9, 'b') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner
INSERT INTO account (id, owner) VALUES (1, 'a') ON CONFLICT (owner) DO NOTHING
INSERT INTO account (id, owner) VALUES (1, NULL) ON CONFLICT (id) DO UPDATE SET owner = 'x'
INSERT INTO account (id, owner) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET email = 'e2'
INSERT INTO account (id, owner) SELECT id, 'sel' FROM account ON CONFLICT (id) DO UPDATE SET (owner, code) = (excluded.owner, 'c')
INSERT INTO pair VALUES (1, 'x', 7) ON CONFLICT (b, a) DO UPDATE SET c = excluded.c RETURNING *
INSERT INTO entry (account, amount) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET amount = 0 RETURNING amount
-- UPDATE.
UPDATE account SET balance = balance + 1 WHERE id = 2 RETURNING id, balance
UPDATE account SET balance = balance + 1
UPDATE account SET balance = -1 WHERE id = 2
UPDATE account SET owner = NULL WHERE id = 2
UPDATE account SET id = 2 WHERE id = 1
UPDATE account SET id = id + 100 RETURNING id, twice
UPDATE account SET id = id + 1
UPDATE account SET id = 50 WHERE id = 5
UPDATE account SET email = 'e1' WHERE id = 2
UPDATE account SET email = NULL RETURNING email
UPDATE account SET balance = DEFAULT, opened = DEFAULT WHERE id = 3 RETURNING balance, opened
UPDATE account AS a SET owner = e.amount FROM entry e WHERE e.account = a.id AND e.amount = 3 RETURNING a.id, e.amount
UPDATE public.account SET owner = 'x' FROM plain WHERE plain.a = public.account.id
UPDATE account SET (owner, code) = (SELECT 'n', 'c') WHERE id = 1 RETURNING owner, code
UPDATE account SET twice = 1
UPDATE entry SET account = 77 WHERE amount = 1
UPDATE entry SET account = 5 WHERE amount < 3
UPDATE pair SET a = 5 WHERE b = 'x' AND a = 1
UPDATE pair SET a = 5 WHERE b = 'y'
UPDATE plain SET a = a + 1 RETURNING a
UPDATE plain SET b = '1' WHERE a = 1
UPDATE node SET parent = 77 WHERE id = 1
UPDATE node SET id = 20 WHERE id = 1
UPDATE node SET id = 60, parent = 60 WHERE id = 6
UPDATE rich SET balance = 0 WHERE id = 3
UPDATE domains SET id = -1
UPDATE account SET balance = 0 WHERE false
WITH u AS (UPDATE account SET balance = 0 WHERE id = 1 RETURNING id) SELECT * FROM u
-- DELETE.
DELETE FROM account WHERE id = 1 RETURNING id, twice
DELETE FROM account WHERE id < 4
DELETE FROM account
DELETE FROM account WHERE id = 5
DELETE FROM entry USING account a WHERE a.id = entry.account AND a.owner = 'o1' RETURNING amount, a.owner
DELETE FROM plain WHERE a = 1 RETURNING a
DELETE FROM plain
DELETE FROM pair WHERE a = 1 AND b = 'x'
DELETE FROM pair WHERE b = 'y'
DELETE FROM node WHERE id = 1
DELETE FROM node WHERE id IN (2, 3)
DELETE FROM node WHERE id = 5
DELETE FROM node
DELETE FROM node WHERE id = 6
DELETE FROM rich
DELETE FROM other.account RETURNING *
DELETE FROM account WHERE id IN (SELECT account FROM entry ORDER BY amount LIMIT 1)
-- Constraints that are checked later.
INSERT INTO later VALUES (3, 4)
INSERT INTO sooner VALUES (3, 4)
DELETE FROM later WHERE id = 1
UPDATE later SET id = 9 WHERE id = 2
SET CONSTRAINTS ALL DEFERRED
