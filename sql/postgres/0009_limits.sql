-- A create is to cost the same however many unfinished tasks its owner has: it counted them each time.

-- How many an owner had when they were counted last, and the newest task (of any owner) of just before. Each task created
-- since has a place after that one, so that the owner has by now at most as many more as there are places. A count that is
-- long past says nothing: a purge deletes it.
CREATE TABLE counted (
  owner text COLLATE "C" PRIMARY KEY,
  live bigint NOT NULL,
  newest bigint NOT NULL
);

CREATE INDEX counted_newest ON counted (newest);

-- Whether the tasks of an owner stay below the limit with all creates that may be under way, one for each connection.
CREATE FUNCTION far_below(live_limit bigint, task_owner text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  -- Few are counted faster than remembered.
  worth_remembering CONSTANT bigint := 100;
  others bigint := current_setting('max_connections')::bigint;
  known counted;
  newest_now bigint;
  live_now bigint;
BEGIN
  SELECT * INTO known FROM counted WHERE owner = task_owner;
  newest_now := coalesce((SELECT max(seq) FROM task), 0);
  -- Twice: others were under way when this was counted, and others are now.
  IF known.live + greatest(newest_now - known.newest, 0) < live_limit - 2 * others THEN RETURN true; END IF;
  SELECT count(*) INTO live_now FROM (
    SELECT FROM task WHERE owner = task_owner AND finished_at IS NULL LIMIT greatest(live_limit - others, 0)) AS live;
  IF live_now BETWEEN worth_remembering AND live_limit - 2 * others
    -- Nobody waits for another one who remembers the same.
    AND pg_try_advisory_xact_lock(lock_of('counted ' || task_owner))
  THEN
    INSERT INTO counted (owner, live, newest) VALUES (task_owner, live_now, newest_now)
    ON CONFLICT (owner) DO UPDATE SET live = excluded.live, newest = excluded.newest;
  END IF;
  RETURN live_now < live_limit - others;
END $$;

-- Whether an owner may have one more. Near the limit their creates take turns, and wait for those that began further off.
CREATE FUNCTION has_room(live_limit bigint, task_owner text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF far_below(live_limit, task_owner) THEN
    PERFORM pg_advisory_xact_lock_shared(lock_of('owner ' || task_owner));
    IF far_below(live_limit, task_owner) THEN RETURN true; END IF;
    -- Others came near in between. The shared lock can't become the other one, as two could wait for each other.
    RAISE EXCEPTION 'the limit came near' USING ERRCODE = 'serialization_failure';
  END IF;
  PERFORM pg_advisory_xact_lock(lock_of('owner ' || task_owner));
  RETURN (SELECT count(*) FROM (
    SELECT FROM task WHERE owner = task_owner AND finished_at IS NULL LIMIT live_limit) AS live) < live_limit;
END $$;

-- As before, but for the limit.
CREATE OR REPLACE FUNCTION create_task(
  given bigint, task_id text, task_owner text, task_tool text, task_version text, task_queue text,
  task_priority integer, task_timeout_ms bigint, task_keep_ms bigint, task_attempts integer, task_recovery text,
  task_unwind boolean, task_client text, task_auth text, task_answers text, task_args text, live_limit bigint
) RETURNS SETOF seen LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  now bigint := instant_of(given);
  t task;
BEGIN
  IF live_limit IS NOT NULL AND NOT has_room(live_limit, task_owner) THEN
    RETURN QUERY SELECT * FROM made_before(
      task_id, task_owner, task_tool, task_client, task_auth, task_answers, task_args);
    RETURN;
  END IF;
  INSERT INTO task (id, owner, tool, version, queue, priority, status, created_at, updated_at, turned_at,
    timeout_ms, keep_ms, deadline, rev, epoch, attempts, strikes, recovery, unwind, cancel_requested)
  VALUES (task_id, task_owner, task_tool, task_version, task_queue, task_priority, 'working', now, now, now,
    task_timeout_ms, task_keep_ms, CASE WHEN task_timeout_ms IS NOT NULL THEN later(now, task_timeout_ms) END,
    1, 0, task_attempts, 0, task_recovery, task_unwind, false)
  ON CONFLICT (id) DO NOTHING
  RETURNING * INTO t;
  IF t.seq IS NULL THEN
    RETURN QUERY SELECT * FROM made_before(
      task_id, task_owner, task_tool, task_client, task_auth, task_answers, task_args);
    IF NOT FOUND THEN RAISE EXCEPTION 'the id is taken' USING ERRCODE = 'unique_violation'; END IF;
    RETURN;
  END IF;
  INSERT INTO call (task, client, auth, answers, args) VALUES (t.seq, task_client, task_auth, task_answers, task_args);
  PERFORM enqueue(t, now, 0);
  RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
END $$;

-- As before, and forgets counts so old that no limit is far enough off for them. Another one costs no more than a count.
CREATE OR REPLACE FUNCTION purge(
  given bigint, batch integer, shortest_memory bigint, OUT purged text[], OUT more boolean
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  IF pg_try_advisory_xact_lock(lock_of('purge')) THEN
    SELECT * INTO purged, more FROM purge_batch(given, batch, shortest_memory);
    DELETE FROM counted WHERE newest < (SELECT max(seq) FROM task) - 100000;
  ELSE
    SELECT '{}', false INTO purged, more;
  END IF;
END $$;
