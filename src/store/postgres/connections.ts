import { createHash } from "node:crypto";
import pg, { type Client, type ClientConfig, type Pool, type PoolConfig } from "pg";
import { TaskError } from "../../errors.ts";
import { isConflict, isLost, isMisplaced, isUnsure, storeError } from "./failures.ts";

/** The way to the database. */
export interface Connections {
  /**
   * Runs one statement, which is a transaction of its own. Its rows have int8 as numbers. Throws `STORE_ANSWER_LOST` when
   * it may have changed something, and nobody knows.
   */
  run<R>(text: string, values: readonly unknown[], effect: Effect): Promise<R[]>;
  /** A connection apart from the pool, not yet connected, with a name for the server's list. */
  open(name: string): Client;
  close(): Promise<void>;
}

/** What a statement does: nothing; something that it can do again with the same end; or something else each time. */
export type Effect = "reads" | "repeats" | "acts";

export interface ConnectionsOptions {
  /** Connections at most; those of a pool that is given are its own affair. */
  readonly connections: number;
  /** How long a connection or an answer may take, in milliseconds. A pool that is given may have shorter limits. */
  readonly timeoutMs: number;
  /** Whether statements have names, so that the server plans each one once for a connection; until one gets misplaced. */
  readonly prepare: boolean;
  /** What else `pg` is to know. */
  readonly pg: PoolConfig;
}

/** So often a statement that met another one is tried again. */
const tries = 5;

const int8 = 20;
const types: NonNullable<ClientConfig["types"]> = {
  getTypeParser: (oid: number, format?: "text" | "binary") =>
    oid === int8 ? Number : (pg.types.getTypeParser as (...args: unknown[]) => (value: string) => unknown)(oid, format),
};

/** Connects lazily. A pool that was given is left open. */
export function createConnections(urlOrPool: string | Pool, options: ConnectionsOptions): Connections {
  const { pool, config, own } = typeof urlOrPool === "string" ? ownPool(urlOrPool, options) : givenPool(urlOrPool);
  pool.on("connect", neverFatal);
  const gate = createGate(config.max ?? 10);
  const names = new Map<string, string>();
  const { timeoutMs } = options;
  let { prepare } = options;

  function nameOf(text: string): string {
    const name = names.get(text) ?? `mcp-tasks ${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
    names.set(text, name);
    return name;
  }

  async function once<R>(text: string, values: readonly unknown[], sent: () => void): Promise<R[]> {
    const client = await within(pool.connect(), timeoutMs, (late) => late.release());
    const quiet = () => {};
    let broken = false;
    // A connection that breaks fails its statement, too: nobody else needs to hear of it.
    client.on("error", quiet);
    try {
      const named = prepare ? { name: nameOf(text) } : {};
      sent();
      const statement = { ...named, text, values: [...values], types, query_timeout: timeoutMs };
      const { rows } = await client.query(statement);
      return rows as R[];
    } catch (thrown) {
      broken = isLost(thrown);
      throw thrown;
    } finally {
      client.off("error", quiet);
      client.release(broken);
    }
  }

  async function run<R>(text: string, values: readonly unknown[], effect: Effect): Promise<R[]> {
    let unsure = false;
    for (let attempt = 1; ; attempt++) {
      let sentAt: number | null = null;
      // One connection broke, which says nothing of others; where time ran out, it would run out for them, too.
      const cut = () => sentAt !== null && performance.now() - sentAt < timeoutMs / 2;
      try {
        const action = () => once<R>(text, values, () => (sentAt = performance.now()));
        return await gate(action, (thrown) => isLost(thrown) && !cut());
      } catch (thrown) {
        if (isMisplaced(thrown) && attempt < tries) {
          prepare = false;
          continue;
        }
        const lost = sentAt !== null && isUnsure(thrown);
        const again = lost && !unsure && effect !== "acts" && cut();
        unsure ||= lost;
        if (unsure && effect !== "reads" && !again) throw new TaskError("STORE_ANSWER_LOST", { cause: thrown });
        if (!again && (!isConflict(thrown) || attempt === tries)) throw storeError(thrown);
      }
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10 * attempt));
    }
  }

  return {
    run,
    open: (name) => new pg.Client({ ...config, application_name: name }),
    async close() {
      pool.off("connect", neverFatal);
      if (own) await pool.end();
    },
  };
}

/**
 * The pool lets go of a new connection before whoever waits for it can listen, and an error that nobody hears ends the
 * process: one that ends in the packet that says it is ready, for instance.
 */
function neverFatal(client: Client): void {
  client.on("error", () => {});
}

function ownPool(url: string, { connections, timeoutMs, pg: more }: ConnectionsOptions) {
  const config: PoolConfig = {
    connectionString: url,
    application_name: "mcp-tasks",
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
    keepAlive: true,
    ...more,
    max: connections,
    // An open store keeps no process alive.
    allowExitOnIdle: true,
  };
  const pool = new pg.Pool(config);
  // A connection that breaks while it is idle: the pool drops it, and the next verb takes another.
  pool.on("error", () => {});
  return { pool, config, own: true };
}

function givenPool(pool: Pool) {
  // pg hides the password from enumeration, and so from a spread.
  const { options } = pool as Pool & { readonly options: PoolConfig };
  const config: PoolConfig = { ...options, ...(options.password === undefined ? {} : { password: options.password }) };
  return { pool, config, own: false };
}

/** What comes within so many milliseconds; `late` gets what comes after that. */
export async function within<T>(coming: Promise<T>, ms: number, late: (value: T) => void = () => {}): Promise<T> {
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    over.reject(new Error("The database takes too long."));
    coming.then(late).catch(() => {});
  }, ms);
  try {
    return await Promise.race([coming, over.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * So many actions at once; the rest waits here and not in the pool, whose time limit is for connecting. When an action
 * fails in a way that all others would, those that wait hear of it at once, instead of one after the other.
 */
function createGate(most: number) {
  const waiting: { readonly enter: () => void; readonly refuse: (reason: unknown) => void }[] = [];
  let inside = 0;
  return async <T>(action: () => Promise<T>, forAll: (thrown: unknown) => boolean): Promise<T> => {
    if (inside >= most) await new Promise<void>((enter, refuse) => waiting.push({ enter, refuse }));
    else inside += 1;
    try {
      return await action();
    } catch (thrown) {
      if (forAll(thrown)) for (const { refuse } of waiting.splice(0)) refuse(thrown);
      throw thrown;
    } finally {
      // Whoever waits takes this place.
      const next = waiting.shift();
      if (next === undefined) inside -= 1;
      else next.enter();
    }
  };
}

/** A schema's name as SQL has it. Throws `MISUSE` for what is no name. */
export function quoteName(name: string): string {
  if (name === "" || name.includes("\0") || Buffer.byteLength(name) > 63 || /^pg_/i.test(name))
    throw new TaskError("MISUSE", { detail: "The name of the schema is none that Postgres takes." });
  return pg.escapeIdentifier(name);
}
