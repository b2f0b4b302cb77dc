-- Tasks and all that belongs to them. JSON is TEXT, stored as it was given: JSONB would refuse \u0000 and reorder keys.
-- Instants are milliseconds since the Unix epoch. Names that a program chose (owner, tool, key and so on) are encoded
-- where SQLite could not hold them: see src/store/sqlite/rows.ts.

-- "mcpt": tells our files from other SQLite databases.
PRAGMA application_id = 0x6d637074;

CREATE TABLE task (
  seq INTEGER PRIMARY KEY, -- the order of creation
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  tool TEXT NOT NULL,
  version TEXT NOT NULL,
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
  status_message TEXT,
  progress TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  turned_at INTEGER NOT NULL,
  timeout_ms INTEGER,
  keep_ms INTEGER,
  deadline INTEGER, -- null without a timeout, and once the task has ended
  finished_at INTEGER,
  purge_at INTEGER,
  rev INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  strikes INTEGER NOT NULL, -- attempts since the last progress
  recovery TEXT NOT NULL CHECK (recovery IN ('retry', 'fail')),
  unwind INTEGER NOT NULL, -- a cancel resumes a waiting handler
  cancel_requested INTEGER NOT NULL,
  cancel_by INTEGER, -- when a running task that was asked to end is ended
  changed INTEGER NOT NULL, -- its place in the order of all changes
  error TEXT CHECK ((error IS NOT NULL) = (status = 'failed')),
  result TEXT CHECK ((result IS NOT NULL) = (status = 'completed'))
) STRICT;

CREATE INDEX task_changed ON task (changed);
CREATE INDEX task_live_owner ON task (owner) WHERE finished_at IS NULL;
CREATE INDEX task_deadline ON task (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX task_cancel_by ON task (cancel_by) WHERE cancel_by IS NOT NULL;
CREATE INDEX task_purge_at ON task (purge_at) WHERE purge_at IS NOT NULL;

-- What nobody can do by accident, in any version of the code.
CREATE TRIGGER task_frozen BEFORE UPDATE ON task WHEN OLD.finished_at IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'a finished task never changes');
END;

-- The call that started a task. Apart from it, so that a new status does not rewrite a megabyte of arguments.
CREATE TABLE call (
  task INTEGER PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  client TEXT NOT NULL,
  auth TEXT NOT NULL,
  answers TEXT NOT NULL,
  args TEXT NOT NULL
) STRICT;

-- The ticket to run a task: at most one each. The first columns repeat the task's, for the indices.
CREATE TABLE activation (
  task INTEGER PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  queue TEXT NOT NULL,
  tool TEXT NOT NULL,
  version TEXT NOT NULL,
  priority INTEGER NOT NULL,
  owner TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('ready', 'delayed', 'leased')),
  due INTEGER NOT NULL,
  lease_until INTEGER CHECK ((lease_until IS NOT NULL) = (state = 'leased')),
  holder TEXT CHECK ((holder IS NOT NULL) = (state = 'leased'))
) STRICT;

CREATE INDEX activation_ready ON activation (queue, tool, version, priority, owner, task) WHERE state = 'ready';
CREATE INDEX activation_delayed ON activation (due) WHERE state = 'delayed';
CREATE INDEX activation_lease ON activation (lease_until) WHERE state = 'leased';
CREATE INDEX activation_holder ON activation (holder) WHERE state = 'leased';
CREATE INDEX activation_running_owner ON activation (owner) WHERE state = 'leased';
CREATE INDEX activation_running_tool ON activation (tool) WHERE state = 'leased';

-- Whose turn it is. A lane is one owner's ready activations of one kind; who is served goes to the end of the line,
-- and so does who comes new. An empty lane is dropped when its turn comes.
CREATE TABLE lane (
  id INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  tool TEXT NOT NULL,
  version TEXT NOT NULL,
  priority INTEGER NOT NULL,
  owner TEXT NOT NULL,
  turn INTEGER NOT NULL,
  UNIQUE (owner, queue, tool, version, priority)
) STRICT;

CREATE INDEX lane_next ON lane (queue, tool, version, priority DESC, turn);
CREATE INDEX lane_turn ON lane (turn);

CREATE TABLE step (
  id INTEGER PRIMARY KEY,
  task INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  key TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('started', 'done', 'failed')),
  wake_at INTEGER,
  value TEXT CHECK ((value IS NULL) = (state = 'started')),
  UNIQUE (task, key)
) STRICT;

CREATE TABLE input (
  id INTEGER PRIMARY KEY, -- the order of asking
  task INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  key TEXT NOT NULL,
  open INTEGER NOT NULL, -- the task waits for it
  request TEXT NOT NULL,
  response TEXT CHECK (response IS NULL OR open = 0),
  UNIQUE (task, key)
) STRICT;

CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  task INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  key TEXT NOT NULL,
  awaited INTEGER NOT NULL,
  value TEXT,
  UNIQUE (task, key)
) STRICT;

-- Purged tasks, remembered for a while so that the answer can say "expired".
CREATE TABLE tombstone (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tombstone_until ON tombstone (until);

-- How many changes there were: the next task.changed. A maximum over the tasks would fall back after a purge.
CREATE TABLE change (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last INTEGER NOT NULL
) STRICT;

INSERT INTO change VALUES (1, 0);

-- A task as the code reads it: with the questions it waits on, so that one statement sees one moment.
CREATE VIEW seen AS
SELECT
  seq,
  id,
  owner,
  tool,
  version,
  queue,
  priority,
  status,
  status_message AS statusMessage,
  progress,
  created_at AS createdAt,
  updated_at AS updatedAt,
  turned_at AS turnedAt,
  timeout_ms AS timeoutMs,
  keep_ms AS keepMs,
  deadline,
  finished_at AS finishedAt,
  purge_at AS purgeAt,
  rev,
  epoch,
  attempts,
  strikes,
  recovery,
  unwind,
  cancel_requested AS cancelRequested,
  cancel_by AS cancelBy,
  changed,
  error,
  result,
  (SELECT iif(state = 'leased', 'leased', 'queued') FROM activation WHERE activation.task = task.seq) AS activation,
  CASE
    WHEN status = 'input_required' THEN (
      SELECT json_group_array(json_array(input.key, input.request) ORDER BY input.id)
      FROM input
      WHERE input.task = task.seq AND input.open = 1
    )
  END AS asks
FROM task;
