import { randomUUID } from "node:crypto";
import pg, { type Client } from "pg";
import { TaskError } from "../../errors.ts";

type Listener = (taskId: string | null) => void;

/** Tells those who watch what changed. */
export interface Hints {
  watch(listener: Listener): () => void;
  /** To be called after each commit of this process. */
  changed(ids: readonly string[]): void;
  close(): Promise<void>;
}

export interface HintsOptions {
  /** What the channel is called. */
  readonly channel: string;
  /** Opens a connection that can LISTEN; null: there is none. */
  readonly open: (() => Client) | null;
  /** Sends a payload to the channel. */
  readonly notify: (payload: string) => Promise<unknown>;
  /** How often to look without LISTEN, and how often in spite of it, in milliseconds. */
  readonly pollMs: number;
  readonly recheckMs: number;
}

/**
 * A NOTIFY inside a transaction makes commits wait for one another: it is sent after them, one for all of so many
 * milliseconds. The first after a pause goes at once.
 */
const coalesceMs = 5;

/** Postgres takes less than 8 000 bytes. What doesn't fit is told as "any". */
const longestPayload = 7_900;

const longestPauseMs = 5_000;
const lastMs = 500;

/** How long to go on listening after the last one who watched has left: another one often comes soon. */
const lingerMs = 10_000;

/**
 * Own changes are told at once, those of others by LISTEN, while somebody watches. A notification can get lost, with the
 * process that was to send it or with the connection: now and then everything is told as "any", and more often while
 * nothing can be heard.
 */
export function createHints({ channel, open, notify, pollMs, recheckMs }: HintsOptions): Hints {
  const origin = randomUUID().slice(0, 8);
  const listeners = new Set<Listener>();
  const outbox = new Set<string>();
  let sending: Promise<void> | null = null;
  let closed = false;
  let stopListening: (() => void) | null = null;
  let linger: NodeJS.Timeout | undefined;

  function stop(): void {
    clearTimeout(linger);
    stopListening?.();
    stopListening = null;
  }

  function tell(ids: readonly (string | null)[]): void {
    for (const id of ids) {
      for (const listener of listeners) queueMicrotask(() => listeners.has(listener) && listener(id));
    }
  }

  async function send(): Promise<void> {
    while (outbox.size > 0) {
      const payload = JSON.stringify([origin, ...outbox]);
      outbox.clear();
      const short = Buffer.byteLength(payload) > longestPayload ? JSON.stringify([origin]) : payload;
      // Whoever should have heard it looks by themselves, later.
      await notify(short).catch(() => {});
      if (!closed) await new Promise<void>((resolve) => setTimeout(resolve, coalesceMs));
    }
    sending = null;
  }

  /** Says nothing of a task: whoever listens hears that it can be heard. */
  const call = () => void notify(JSON.stringify([origin, ""])).catch(() => {});

  function hear(payload: string): void {
    const [from, ...ids] = parse(payload);
    if (from !== origin) tell(ids.length === 0 ? [null] : ids);
  }

  return {
    watch(listener) {
      const own: Listener = (id) => listener(id);
      if (closed) throw new TaskError("STORE_CLOSED");
      listeners.add(own);
      clearTimeout(linger);
      stopListening ??= listen({ channel, open, pollMs, recheckMs, call, hear, tell });
      return () => {
        if (!listeners.delete(own) || listeners.size > 0) return;
        clearTimeout(linger);
        linger = setTimeout(stop, lingerMs).unref();
      };
    },
    changed(ids) {
      if (ids.length === 0) return;
      tell(ids);
      for (const id of ids) outbox.add(id);
      sending ??= send();
    },
    async close() {
      closed = true;
      listeners.clear();
      stop();
      // The last word is worth a moment, and no more: a pool that its owner has ended never answers.
      const late = new Promise<void>((resolve) => setTimeout(resolve, lastMs).unref());
      await Promise.race([sending, late]);
    },
  };
}

/** What is none of ours says nothing of which task it is about. */
function parse(payload: string): string[] {
  try {
    const value: unknown = JSON.parse(payload);
    if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value;
  } catch {
    // Then anything may have changed.
  }
  return [""];
}

interface Listening extends Pick<HintsOptions, "channel" | "open" | "pollMs" | "recheckMs"> {
  readonly call: () => void;
  readonly hear: (payload: string) => void;
  readonly tell: (ids: readonly null[]) => void;
}

/**
 * Keeps a connection listening until the returned function is called. That LISTEN succeeds proves nothing: a pooler that
 * shares sessions takes it, and what comes is lost. It counts from the first word that is heard, if only our own call.
 */
function listen({ channel, open, pollMs, recheckMs, call, hear, tell }: Listening): () => void {
  let client: Client | null = null;
  let listening = false;
  let failures = 0;
  let stopped = false;
  let checking = false;
  let reconnect: NodeJS.Timeout | undefined;
  let look: NodeJS.Timeout | undefined;

  function drop(lost: Client): void {
    if (client !== lost) return;
    client = null;
    listening = false;
    void lost.end().catch(() => {});
    if (stopped) return;
    plan();
    const pause = Math.min(longestPauseMs, 100 * 2 ** failures++) * (0.5 + Math.random() / 2);
    reconnect = setTimeout(() => void connect(), pause).unref();
  }

  async function connect(): Promise<void> {
    if (open === null || stopped) return;
    const next = open();
    client = next;
    next.on("error", () => drop(next));
    next.on("end", () => drop(next));
    next.on("notification", ({ payload }) => {
      if (client === next && !listening) {
        listening = true;
        failures = 0;
        plan();
      }
      hear(payload ?? "");
    });
    try {
      await next.connect();
      if (client !== next) return;
      // An open store keeps no process alive. (The method is there, its type is not.)
      (next as Client & { unref(): void }).unref();
      await next.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
      if (client !== next) return;
      // What changed before this listened was told to nobody here.
      tell([null]);
      call();
    } catch {
      drop(next);
    }
  }

  /** A connection that is dead without knowing it shows when it doesn't answer. */
  async function check(checked: Client): Promise<void> {
    if (checking) return drop(checked);
    checking = true;
    await checked.query("SELECT 1").catch(() => drop(checked));
    checking = false;
  }

  function plan(): void {
    clearInterval(look);
    look = setInterval(
      () => {
        tell([null]);
        if (listening && client !== null) void check(client);
      },
      listening ? recheckMs : pollMs,
    ).unref();
  }

  plan();
  void connect();
  return () => {
    stopped = true;
    clearInterval(look);
    clearTimeout(reconnect);
    if (client !== null) drop(client);
  };
}
