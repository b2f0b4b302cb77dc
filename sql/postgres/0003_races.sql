-- Verbs that touch many tasks, and others at the same time.

-- Renewing and taking back a lease exclude each other: both hold the activation's lock while they decide.

-- A worker may hold under several names, each its own and what distinguishes them.
CREATE FUNCTION is_holder(holder text, worker text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT holder = worker OR starts_with(holder, worker || E'\x1f')
$$;

-- Renews what it can lock at once. A lease whose lock another verb holds comes back with `renewed` false: whether it is
-- still held shows when that verb has ended. Then it is asked for again, alone and with `waiting`: whoever waits for a
-- lock holds no other, so that two of them never wait for each other.
CREATE FUNCTION renew(
  given bigint, lease_holder text, ids text[], epochs bigint[], lease_ms double precision, waiting boolean
) RETURNS TABLE (id text, epoch bigint, "cancelRequested" boolean, renewed boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  task_seq bigint;
BEGIN
  FOR id, epoch IN SELECT * FROM unnest(ids, epochs) LOOP
    renewed := true;
    task_seq := (SELECT seq FROM task WHERE task.id = renew.id);
    IF NOT waiting THEN
      PERFORM FROM activation
      WHERE activation.task = task_seq AND activation.epoch = renew.epoch AND is_holder(holder, lease_holder)
      FOR UPDATE SKIP LOCKED;
      renewed := FOUND;
    END IF;
    IF renewed THEN
      UPDATE activation SET lease_until = later(instant_of(given), lease_ms)
      WHERE activation.task = task_seq AND activation.epoch = renew.epoch AND is_holder(holder, lease_holder);
    ELSE
      PERFORM FROM activation
      WHERE activation.task = task_seq AND activation.epoch = renew.epoch AND is_holder(holder, lease_holder);
    END IF;
    CONTINUE WHEN NOT FOUND;
    -- Looked for under the lock: a cancel decides by the lease, and waits for it.
    "cancelRequested" := (SELECT cancel_requested FROM task WHERE seq = task_seq);
    RETURN NEXT;
  END LOOP;
END $$;

-- Of an older version of the code, which takes what it is told of for held.
CREATE OR REPLACE FUNCTION renew(given bigint, lease_holder text, ids text[], epochs bigint[], lease_ms double precision)
RETURNS TABLE (id text, epoch bigint, "cancelRequested" boolean)
LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT one.id, one.epoch, one."cancelRequested" FROM renew(given, lease_holder, ids, epochs, lease_ms, false) AS one
$$;

-- As before, but for the lock: a lease that is being renewed still counts, and its holder has the grace.
CREATE OR REPLACE FUNCTION request_cancel(given bigint, task_id text, task_owner text, grace_ms double precision)
RETURNS SETOF seen LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now bigint;
  t task;
BEGIN
  SELECT * INTO t FROM task
  WHERE id = task_id AND owner = task_owner AND finished_at IS NULL AND NOT cancel_requested
  FOR NO KEY UPDATE;
  IF t.seq IS NOT NULL THEN
    PERFORM FROM activation WHERE task = t.seq FOR UPDATE;
    now := instant_of(given);
    UPDATE task SET cancel_requested = true WHERE seq = t.seq;
    IF EXISTS (SELECT FROM activation WHERE task = t.seq AND state = 'leased' AND lease_until > now) THEN
      UPDATE task SET cancel_by = later(now, grace_ms) WHERE seq = t.seq;
      PERFORM reveal(t, now, t.status, t.status_message);
    ELSIF t.unwind AND t.epoch > 0 THEN
      UPDATE task SET cancel_by = later(now, grace_ms) WHERE seq = t.seq;
      UPDATE input SET open = false WHERE task = t.seq AND open;
      PERFORM enqueue(t, now, 0);
      PERFORM reveal(t, now, 'working', t.status_message);
    ELSE PERFORM end_task(t, now, 'cancelled', NULL, NULL, true);
    END IF;
    RETURN QUERY SELECT * FROM seen WHERE seq = t.seq;
  ELSE RETURN QUERY SELECT * FROM find_task(given, task_id, task_owner);
  END IF;
END $$;

-- Of all processes that sweep at the same time, one does the work: whoever finds another one at it has nothing to do. The
-- lock goes with the transaction, and so with the connection of a process that dies. Old versions of the code call these
-- functions by the same names, and so take part.

ALTER FUNCTION sweep(bigint, integer, text[]) RENAME TO sweep_batch;
ALTER FUNCTION purge(bigint, integer, bigint) RENAME TO purge_batch;

CREATE FUNCTION sweep(
  given bigint, batch integer, failures text[],
  OUT changed text[], OUT timed_out integer, OUT cancelled integer, OUT more boolean
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF pg_try_advisory_xact_lock(lock_of('sweep')) THEN
    SELECT * INTO changed, timed_out, cancelled, more FROM sweep_batch(given, batch, failures);
  ELSE
    SELECT '{}', 0, 0, false INTO changed, timed_out, cancelled, more;
  END IF;
END $$;

CREATE FUNCTION purge(given bigint, batch integer, shortest_memory bigint, OUT purged text[], OUT more boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF pg_try_advisory_xact_lock(lock_of('purge')) THEN
    SELECT * INTO purged, more FROM purge_batch(given, batch, shortest_memory);
  ELSE
    SELECT '{}', false INTO purged, more;
  END IF;
END $$;
