-- What is needed to ask again when an answer was lost.

-- The task that this very create has made already.
CREATE FUNCTION made_before(
  task_id text, task_owner text, task_tool text, task_client text, task_auth text, task_answers text, task_args text
) RETURNS SETOF seen LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT seen.* FROM seen JOIN call ON call.task = seen.seq
  WHERE id = task_id AND owner = task_owner AND tool = task_tool
    AND client = task_client AND auth = task_auth AND answers = task_answers AND args = task_args
$$;

-- As before, but a task that is there already is the answer: its create was carried out, and asked for again. Even at the
-- limit, to which it counts.
CREATE OR REPLACE FUNCTION create_task(
  given bigint, task_id text, task_owner text, task_tool text, task_version text, task_queue text,
  task_priority integer, task_timeout_ms bigint, task_keep_ms bigint, task_attempts integer, task_recovery text,
  task_unwind boolean, task_client text, task_auth text, task_answers text, task_args text, live_limit bigint
) RETURNS SETOF seen LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint := instant_of(given);
  t task;
  others bigint := current_setting('max_connections')::bigint;
BEGIN
  IF live_limit IS NOT NULL THEN
    -- Only near the limit do creates of one owner take turns: further off, all that may be under way fit below it.
    IF (SELECT count(*) FROM (
      SELECT FROM task WHERE owner = task_owner AND finished_at IS NULL LIMIT greatest(live_limit - others, 0)) AS live
    ) >= live_limit - others THEN
      PERFORM pg_advisory_xact_lock(lock_of('owner ' || task_owner));
      IF (SELECT count(*) FROM (
        SELECT FROM task WHERE owner = task_owner AND finished_at IS NULL LIMIT live_limit) AS live
      ) >= live_limit THEN
        RETURN QUERY SELECT * FROM made_before(
          task_id, task_owner, task_tool, task_client, task_auth, task_answers, task_args);
        RETURN;
      END IF;
    END IF;
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

-- What a claim took whose answer was lost, with leases that begin anew. A claim that is still under way is waited for.
CREATE FUNCTION claim_again(given bigint, lease_holder text, lease_ms double precision)
RETURNS TABLE (now bigint, changed text[], claimed work) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  taken bigint[];
BEGIN
  PERFORM pg_advisory_xact_lock(lock_of('claim'));
  now := instant_of(given);
  WITH held AS (
    UPDATE activation SET lease_until = later(now, lease_ms) WHERE state = 'leased' AND holder = lease_holder
    RETURNING task
  )
  SELECT array_agg(task ORDER BY task) INTO taken FROM held;
  RETURN QUERY SELECT now, '{}'::text[], work FROM work WHERE seq = ANY (taken) ORDER BY seq;
END $$;
