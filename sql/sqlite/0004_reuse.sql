-- Which task stands for a call that may be made again. The newest task with a key has it: whether it still stands for the
-- key is asked of the task itself. Key and call are digests.

CREATE TABLE reuse (
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  call TEXT NOT NULL,
  task INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX reuse_task ON reuse (task);
