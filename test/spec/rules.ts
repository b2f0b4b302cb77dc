/** Whom a rule binds, and how much. `ours` is a promise of this package that the specification leaves open. */
export interface Rule {
  readonly who: "server" | "client" | "both";
  readonly level: "must" | "should" | "may" | "ours";
  readonly says: string;
}

const server = (level: Rule["level"], says: string) => ({ who: "server", level, says }) as const;
const client = (level: Rule["level"], says: string) => ({ who: "client", level, says }) as const;
const both = (level: Rule["level"], says: string) => ({ who: "both", level, says }) as const;

/** What the Tasks extension demands, rule by rule, in our own words. Tests cite the ids. */
export const rules = {
  // Negotiation
  "cap:advertise": server("must", "server/discover lists the extension with an empty object"),
  "cap:per-request": client("must", "every request declares the extension in its own client capabilities"),
  "cap:never-unasked": server("must", "a request that does not declare the extension is never answered with a task"),
  "cap:required-tool": server("must", "a tool that only runs as a task refuses others with -32021 and what is missing"),
  "cap:gate-methods": server("must", "get, update and cancel refuse who does not declare the extension with -32021"),
  "cap:gate-listen": server("must", "listening to tasks refuses who does not declare the extension with -32021"),
  "cap:server-decides": server("must", "a task parameter on a request is unknown, and ignored"),
  "cap:legacy-declares-nothing": server("must", "the tasks capability of 2025-11-25 declares nothing"),
  "cap:no-legacy-advert": server("must", "the tasks capability of 2025-11-25 is not advertised"),
  "cap:not-in-2025": server("must", "under 2025-11-25 the extension does not exist, whatever is declared"),
  "cap:input-kinds": server("must", "a client is only sent kinds of input that it declared on the request in hand"),

  // Creation
  "create:flat": server("must", "the handle is one flat object without payload"),
  "create:result-type": server("must", "resultType is task on a handle and on nothing else"),
  "create:only-tools-call": both("must", "only a tool call may become a task; elsewhere a task is an invalid answer"),
  "create:durable-first": server(
    "must",
    "whoever holds a handle can read its task, from any replica and after a crash",
  ),
  "create:fields": server("must", "a task always has its id, status, both times in ISO 8601 and ttlMs"),
  "create:id-entropy": server("must", "ids cannot be guessed or counted, and fit a header"),
  "create:mrtr-first": server("should", "what is asked before a task exists is asked on the call itself"),
  "create:polymorphic": client("must", "a call may bring a result or a task"),

  // Reading
  "get:complete": server("must", "answers of the three methods have resultType complete"),
  "get:working": server("must", "a working task carries neither result nor error"),
  "get:input-required": server("must", "a task that waits for input shows every open request and no other"),
  "get:completed": server("must", "the result is what the call would have returned, tool errors included"),
  "get:failed": server("must", "a failed task carries the JSON-RPC error and says why"),
  "get:failed-only-rpc": server("must", "a tool's own error never makes a task failed"),
  "get:cancelled": server("must", "a cancelled task says so"),
  "get:terminal-frozen": server("must", "a final state never changes again, nor does its payload"),
  "get:read-only": server("must", "reading changes nothing and consumes nothing"),
  "get:unknown-id": server("must", "an unknown or expired id is -32602, with the one or the other in the message"),
  "get:ttl": server("may", "a task may be deleted after its time to live, which may change"),
  "get:poll-interval": client("should", "the wait between two reads follows pollIntervalMs, as last told"),
  "get:until-terminal": client("should", "a task is read until it is final or was cancelled"),
  "get:persist": client("should", "ids are kept so that another process can go on"),
  "get:rate": server("may", "who reads too often may be slowed down"),
  "get:removed-methods": server("must", "tasks/result and tasks/list do not exist"),

  // Input
  "input:keys-unique": server("must", "a key names one request in the whole life of a task"),
  "input:ack-empty": server("must", "an update is acknowledged with an empty result"),
  "input:unknown-key": server("should", "answers to what is not asked are ignored"),
  "input:partial": server("may", "some keys may be answered while the rest stay open"),
  "input:unknown-id": server("should", "an update of an unknown task is -32602"),
  "input:answer": client("should", "open requests are answered by updates, and the watching goes on"),
  "input:as-direct": both("must", "a request within a task is treated like a direct one"),
  "input:dedupe": client("should", "a key is shown once and answered once"),
  "input:shape": server("must", "an answer has to fit its request"),

  // Cancelling
  "cancel:ack-empty": server("must", "a cancel is acknowledged with an empty result"),
  "cancel:unknown-id": server("should", "a cancel of an unknown task is -32602"),
  "cancel:cooperative": server("must", "a cancel asks the work to stop, which may still end otherwise"),
  "cancel:terminal-idempotent": server("must", "cancelling a finished task is acknowledged and changes nothing"),
  "cancel:not-by-notification": client("must", "notifications/cancelled plays no part in cancelling a task"),
  "cancel:forget": client("may", "after a cancel nothing of the task needs to be kept"),

  // Notifications
  "listen:filter": client("must", "subscriptions name tasks in notifications.taskIds"),
  "listen:ack-subset": server("must", "the first message lists the ids that will be reported: known and one's own"),
  "listen:no-gap": server("ours", "the state at subscribing is sent at once, a final one too"),
  "listen:only-asked": server("must", "nothing comes that was not asked for"),
  "listen:subscription-id": server("must", "every message of a subscription carries the id of its request"),
  "listen:full-task": server("must", "a notification is the whole task, as a read would give it"),
  "listen:no-progress": server("must", "tasks have no progress or message notifications, on any stream"),
  "listen:graceful": server("should", "a server that ends a stream answers the request first"),
  "listen:not-needed": client("may", "notifications may replace polling, and may also never come"),

  // Transport, errors, security
  "http:mcp-name": client("must", "requests about a task name it in Mcp-Name, and their method in Mcp-Method"),
  "http:mismatch": server("must", "a header that contradicts the body or is malformed is 400 with -32020"),
  "err:internal": server("must", "the server's own faults are -32603"),
  "err:informative": server("should", "messages say what is wrong and leak nothing"),
  "sec:each-request": server("must", "every request is checked against the task's owner; others learn nothing"),
  "reserve:names": both("must", "the extension's names are used for nothing else"),
} as const satisfies Record<string, Rule>;

/** The id of a rule. */
export type RuleId = keyof typeof rules;

/** Rules that no test of a library can show, and why. */
export const unobservable: Partial<Record<RuleId, string>> = {
  "get:rate": "a permission that this server does not use: it never slows a reader down",
};
