-- An owner's tasks, newest first: tasks/list of protocol 2025-11-25 shows them to their owner, page by page.
CREATE INDEX task_owner ON task (owner, created_at, id);
