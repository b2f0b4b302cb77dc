import type { DatabaseSync, StatementSync } from "node:sqlite";

/** Every statement, by name. `seen` is the view that a task is read through; lists are passed as JSON texts. */
const texts = {
  // Unknown and foreign ids take the same way: one search of the same index, and no row.
  find: "SELECT * FROM seen WHERE id = :id AND owner = :owner",
  // What `get` is made of, as an array: see `fromValues`.
  read: `
    SELECT id, owner, tool, version, status, statusMessage, progress, createdAt, updatedAt,
      turnedAt, timeoutMs, keepMs, finishedAt, purgeAt, rev, epoch, cancelRequested,
      activation, asks, result, error
    FROM seen WHERE id = ? AND owner = ?`,
  findAny: "SELECT * FROM seen WHERE id = :id",
  findSeq: "SELECT * FROM seen WHERE seq = :seq",
  // The fence: a worker's verb finds its task only while it holds the lease under the task's latest epoch.
  findLeased: `
    SELECT seen.* FROM seen JOIN activation ON activation.task = seen.seq
    WHERE seen.id = :id AND seen.epoch = :epoch AND activation.state = 'leased'`,
  findTombstone: "SELECT 1 AS found FROM tombstone WHERE id = :id AND owner = :owner",

  // Counts no further than the limit, along an index of unfinished tasks alone.
  countLive: `
    SELECT count(*) AS live
    FROM (SELECT 1 FROM task WHERE owner = :owner AND finished_at IS NULL LIMIT :most)`,
  insertTask: `
    INSERT INTO task (id, owner, tool, version, queue, priority, status, created_at, updated_at, turned_at,
      timeout_ms, keep_ms, deadline, rev, epoch, attempts, strikes, recovery, unwind, cancel_requested, changed)
    VALUES (:id, :owner, :tool, :version, :queue, :priority, 'working', :now, :now, :now,
      :timeoutMs, :keepMs, :deadline, 1, 0, :attempts, 0, :recovery, :unwind, 0, :changed)`,
  insertCall: `
    INSERT INTO call (task, client, auth, answers, args)
    VALUES (last_insert_rowid(), :client, :auth, :answers, :args)`,
  // The task that stands for a key, unless it is over: then the key is free.
  findReusable: `
    SELECT seen.*, reuse.call AS reuseCall FROM reuse JOIN seen ON seen.seq = reuse.task
    WHERE reuse.owner = :owner AND reuse.key = :key
      AND iif(:scope = 'kept',
        seen.purgeAt IS NULL OR seen.purgeAt > :now,
        seen.finishedAt IS NULL AND seen.cancelRequested = 0)`,
  setReusable: `
    INSERT INTO reuse (owner, key, call, task) VALUES (:owner, :key, :call, :task)
    ON CONFLICT DO UPDATE SET call = excluded.call, task = excluded.task`,
  // A task with the call that started it: what a worker needs to run it.
  findWork: `
    SELECT seen.*, call.client, call.auth, call.answers, call.args FROM seen JOIN call ON call.task = seen.seq
    WHERE seen.seq = :seq`,
  save: `
    UPDATE task SET status = :status, status_message = :statusMessage, progress = :progress,
      updated_at = :updatedAt, turned_at = :turnedAt, deadline = :deadline, finished_at = :finishedAt,
      purge_at = :purgeAt, rev = :rev, epoch = :epoch, strikes = :strikes, cancel_requested = :cancelRequested,
      cancel_by = :cancelBy, changed = :changed, error = :error, result = :result
    WHERE seq = :seq`,
  // Changes no indexed column, and so no index.
  countAttempt: "UPDATE task SET epoch = :epoch, strikes = :strikes WHERE seq = :seq",
  // One statement with every filter: an absent one is null. Walks the tasks from the newest and stops at the limit.
  list: `
    SELECT * FROM seen
    WHERE (:status IS NULL OR status = :status)
      AND (:tool IS NULL OR tool = :tool)
      AND (:owner IS NULL OR owner = :owner)
      AND (:before IS NULL OR seq < (SELECT seq FROM task WHERE id = :before))
    ORDER BY seq DESC LIMIT :limit`,

  // Unfinished tasks alone, by the index that holds no others.
  countLiveByTool: `
    SELECT tool, status, count(*) AS count FROM task INDEXED BY task_live_owner WHERE finished_at IS NULL
    GROUP BY tool, status`,
  // What waits since its last visible change, or since its timer rang.
  countQueued: `
    SELECT activation.queue, count(*) AS count, max(:now - max(activation.due, task.updated_at)) AS oldestMs
    FROM activation JOIN task ON task.seq = activation.task
    WHERE activation.state = 'ready' OR activation.state = 'delayed' AND activation.due <= :now
    GROUP BY activation.queue`,

  // The first value stays; a write of no effect, so that it is returned in either case.
  keepSecret: `
    INSERT INTO secret (name, value) VALUES (:name, :value)
    ON CONFLICT DO UPDATE SET value = value RETURNING value`,

  // Along the index of owners, however many tasks others have.
  page: `
    SELECT * FROM seen
    WHERE owner = :owner AND (createdAt, id) < (:createdAt, :id) AND (purgeAt IS NULL OR purgeAt > :now)
    ORDER BY createdAt DESC, id DESC LIMIT :limit`,

  // A pause after a failure is no wait, and not to be cut short: only then has a delayed task spent an attempt.
  isWaiting: `
    SELECT 1 AS found FROM task LEFT JOIN activation ON activation.task = seq
    WHERE seq = :task AND (state IS NULL OR state = 'delayed' AND strikes = 0)`,
  enqueue: `
    INSERT INTO activation (task, queue, tool, version, priority, owner, state, due)
    SELECT seq, queue, tool, version, priority, owner, :state, :due FROM task WHERE seq = :task
    ON CONFLICT (task) DO UPDATE
    SET state = excluded.state, due = excluded.due, lease_until = NULL, holder = NULL`,
  dropActivation: "DELETE FROM activation WHERE task = :task",
  // Who comes new goes to the end of the line. An owner has one place in it, whatever kinds of task they have.
  enterLane: `
    INSERT INTO lane (queue, tool, version, priority, owner, turn)
    SELECT queue, tool, version, priority, owner, coalesce(
      (SELECT lane.turn FROM lane WHERE lane.owner = task.owner LIMIT 1),
      (SELECT max(lane.turn) + 1 FROM lane),
      1)
    FROM task WHERE seq = :task
    ON CONFLICT DO NOTHING`,
  // Who is last in the line stays there.
  served: `
    UPDATE lane SET turn = (SELECT max(turn) + 1 FROM lane)
    WHERE owner = :owner AND turn < (SELECT max(turn) FROM lane)`,
  dropLane: "DELETE FROM lane WHERE id = :id",

  // The next lane. For each kind of task that the worker takes, the inner search finds the one whose turn it is, past
  // owners who have enough running: those are few, so it steps over few. The outer query picks the best of these
  // candidates, and its oldest task: a resumed task goes before newer ones. No head: the lane is empty.
  nextLane: `
    SELECT lane.id, lane.owner,
      (SELECT task FROM activation
       WHERE state = 'ready' AND activation.queue = lane.queue AND activation.tool = lane.tool
         AND activation.version = lane.version AND activation.priority = lane.priority
         AND activation.owner = lane.owner
       ORDER BY task LIMIT 1) AS head
    FROM json_each(:tools) AS kind CROSS JOIN json_each(:queues) AS queue CROSS JOIN lane
    WHERE lane.id = (
        SELECT id FROM lane AS line
        WHERE line.queue = queue.value AND line.tool = kind.value ->> 'name'
          AND line.version = kind.value ->> 'version'
          AND (:ownerLimit IS NULL OR :ownerLimit > (
            SELECT count(*) FROM activation WHERE state = 'leased' AND activation.owner = line.owner))
        ORDER BY line.priority DESC, line.turn LIMIT 1)
      AND (kind.value ->> 'limit' IS NULL OR kind.value ->> 'limit' > (
        SELECT count(*) FROM activation WHERE state = 'leased' AND activation.tool = kind.value ->> 'name'))
    ORDER BY lane.priority DESC, lane.turn, head LIMIT 1`,
  lease: `
    UPDATE activation SET state = 'leased', due = 0, lease_until = :until, holder = :holder WHERE task = :task`,
  renew: `
    UPDATE activation SET lease_until = :until
    FROM task
    WHERE task.id = :id AND task.epoch = :epoch AND activation.task = task.seq
      AND activation.state = 'leased' AND activation.holder = :holder
    RETURNING (SELECT cancel_requested FROM task WHERE seq = activation.task) AS cancelRequested`,
  due: "SELECT task FROM activation WHERE state = 'delayed' AND due <= :now ORDER BY due LIMIT :most",
  holders: "SELECT DISTINCT holder FROM activation WHERE state = 'leased'",
  expiredLeases: "SELECT task FROM activation WHERE state = 'leased' AND lease_until <= :now LIMIT :most",
  leasesOf: "SELECT task FROM activation WHERE state = 'leased' AND holder = :holder LIMIT :most",
  // A search each, for no one index holds all these instants.
  nextDue: `
    SELECT min(due) AS at FROM activation WHERE state = 'delayed'
    UNION ALL
    SELECT min(lease_until) FROM activation WHERE state = 'leased'
    UNION ALL
    SELECT min(wait_until) FROM task WHERE wait_until IS NOT NULL AND finished_at IS NULL`,
  heldUntil: "SELECT lease_until AS until FROM activation WHERE task = :task AND state = 'leased'",

  steps: "SELECT key, state, value, wake_at AS wakeAt FROM step WHERE task = :task ORDER BY id",
  startStep: "INSERT INTO step (task, key, state) VALUES (:task, :key, 'started') ON CONFLICT DO NOTHING",
  // How a step ended stays: a verb that is repeated, because its answer got lost, changes nothing.
  endStep: `
    INSERT INTO step (task, key, state, value) VALUES (:task, :key, :state, :value)
    ON CONFLICT (task, key) DO UPDATE SET state = excluded.state, value = excluded.value, wake_at = NULL
    WHERE state = 'started'`,
  // A timer that still runs keeps its instant; one that rang is set anew, and a step that ended takes none.
  setTimer: `
    INSERT INTO step (task, key, state, wake_at) VALUES (:task, :key, 'started', :wakeAt)
    ON CONFLICT (task, key) DO UPDATE SET wake_at = excluded.wake_at
    WHERE state = 'started' AND (wake_at IS NULL OR wake_at <= :now)`,
  timer: "SELECT wake_at AS wakeAt FROM step WHERE task = :task AND key = :key",
  forgetFailed: "DELETE FROM step WHERE task = :task AND state = 'failed'",

  inputs: "SELECT key, request, response FROM input WHERE task = :task ORDER BY id",
  closeInputs: "UPDATE input SET open = 0 WHERE task = :task AND open = 1",
  // Without a timeout `:until` is null; with one, the instant that was set first stays.
  ask: `
    INSERT INTO input (task, key, open, request, until)
    VALUES (:task, :key, 1, :request,
      iif(:until IS NULL, NULL, coalesce((SELECT until FROM input WHERE task = :task AND key = :since), :until)))
    ON CONFLICT (task, key) DO UPDATE SET open = 1, until = coalesce(until, excluded.until)
    WHERE response IS NULL AND open = 0`,
  answer: `
    UPDATE input SET response = :response, open = 0
    WHERE task = :task AND key = :key AND open = 1 AND (until IS NULL OR until > :now)`,
  findResponse: "SELECT response FROM input WHERE task = :task AND key = :key",
  // How many requests are open, and whether one of the task's waits has ever timed out.
  countOpen: `
    SELECT count(*) AS open, (SELECT late FROM task WHERE seq = :task) AS late
    FROM input WHERE task = :task AND open = 1`,

  events: "SELECT key, value FROM event WHERE task = :task AND value IS NOT NULL ORDER BY id",
  forgetAwaited: "UPDATE event SET awaited = 0 WHERE task = :task AND awaited = 1",
  awaitEvent: `
    INSERT INTO event (task, key, awaited, until) VALUES (:task, :key, 1, :until)
    ON CONFLICT (task, key) DO UPDATE SET awaited = 1, until = coalesce(until, excluded.until)
    RETURNING value`,
  keepEvent: `
    INSERT INTO event (task, key, awaited, value) VALUES (:task, :key, 0, :value)
    ON CONFLICT (task, key) DO UPDATE SET value = excluded.value WHERE value IS NULL AND (until IS NULL OR until > :now)
    RETURNING awaited`,

  anyTimeout: "SELECT 1 AS found FROM task WHERE wait_until IS NOT NULL AND finished_at IS NULL LIMIT 1",
  waitsOver: `
    SELECT seq FROM task WHERE wait_until <= :now AND wait_until IS NOT NULL AND finished_at IS NULL
    ORDER BY wait_until LIMIT :most`,
  // By the waits themselves, whoever asked for them: a version that knows of no timeouts sets no instant at the task.
  isInputOver: "SELECT 1 AS found FROM input WHERE task = :task AND open = 1 AND until <= :now LIMIT 1",
  mayBeOver: `
    SELECT 1 AS found FROM task
    WHERE seq = :task AND (
      wait_until IS NOT NULL
      OR EXISTS (SELECT 1 FROM input WHERE task = :task AND open = 1 AND until IS NOT NULL)
      OR EXISTS (SELECT 1 FROM event WHERE task = :task AND awaited = 1 AND value IS NULL AND until IS NOT NULL))`,
  endLateInputs: `
    UPDATE input SET response = :lateResponse, open = 0 WHERE task = :task AND open = 1 AND until <= :now`,
  endLateEvents: `
    UPDATE event SET value = :lateValue WHERE task = :task AND awaited = 1 AND value IS NULL AND until <= :now`,
  setWaitUntil: `
    UPDATE task SET late = max(late, :late), wait_until = (
      SELECT min(until) FROM (
        SELECT until FROM input WHERE task = :task AND open = 1
        UNION ALL
        SELECT until FROM event WHERE task = :task AND awaited = 1 AND value IS NULL))
    WHERE seq = :task`,

  timedOut: "SELECT seq FROM task WHERE deadline <= :now ORDER BY deadline LIMIT :most",
  graceOver: "SELECT seq FROM task WHERE cancel_by <= :now ORDER BY cancel_by LIMIT :most",
  overdue: `
    SELECT seq, id, owner, keep_ms AS keepMs FROM task WHERE purge_at <= :now ORDER BY purge_at LIMIT :most`,
  // What belongs to the task goes with it, by its foreign keys.
  purge: "DELETE FROM task WHERE seq = :seq",
  bury: "INSERT OR REPLACE INTO tombstone (id, owner, until) VALUES (:id, :owner, :until)",
  forgetTombstones: `
    DELETE FROM tombstone WHERE id IN (SELECT id FROM tombstone WHERE until <= :now ORDER BY until LIMIT :most)`,

  beginVerb: "SAVEPOINT verb",
  undoVerb: "ROLLBACK TO verb",
  endVerb: "RELEASE verb",

  lastChange: "SELECT last FROM change",
  setLastChange: "UPDATE change SET last = :last",
  changedSince: "SELECT id, changed FROM task WHERE changed > :last ORDER BY changed LIMIT :most",
  dataVersion: "PRAGMA data_version",
} as const satisfies Record<string, string>;

/** The prepared statements of one connection. */
export type Statements = { readonly [N in keyof typeof texts]: StatementSync };

/** Prepares all of them, which also tells at once whether the file has what they need. */
export function prepareStatements(db: DatabaseSync): Statements {
  const pairs = Object.entries(texts).map(([name, text]) => [name, db.prepare(text)] as const);
  const statements = Object.fromEntries(pairs) as unknown as Statements;
  statements.read.setReturnArrays(true);
  return statements;
}
