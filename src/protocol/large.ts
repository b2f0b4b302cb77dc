/** The URI template of results that are kept apart; the server reads them for their owner. */
export const resultTemplate = "task-result://{taskId}";

/** Where the result of a task is, if it is kept apart. */
export const resultUri = (taskId: string) => `task-result://${taskId}`;

/** The key under which the result of a task's last attempt is kept; no step can have it. */
export const resultKey = (epoch: number) => `\0result ${epoch}`;
