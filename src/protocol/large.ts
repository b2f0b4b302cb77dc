/** The URI template of results that are kept apart; the server reads them for their owner. */
export const resultTemplate = "task-result://{taskId}";

/** Where the result of a task is, if it is kept apart. */
export const resultUri = (taskId: string) => `task-result://${taskId}`;

/** The key under which a task's result is kept; no step can have it. */
export const resultKey = "\0result";
