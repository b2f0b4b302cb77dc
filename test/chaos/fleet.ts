import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Way } from "./database.ts";
import type { ProcessSettings } from "./process.ts";

const program = fileURLToPath(new URL("process.ts", import.meta.url));

/** A place where a process runs: when one ends, the next one starts. */
export interface Post {
  readonly name: string;
  /** Where it listens, or null while it doesn't. */
  url(): string | null;
  /** Whether it has been ready for a moment, and isn't stopped. */
  working(): boolean;
  kill(): void;
  /** Stops it in its tracks for so many milliseconds. */
  freeze(ms: number): void;
  /** Tells it to end in good order. */
  drain(): void;
  /** See {@link Line}; to be used only where there is one. */
  cut(): void;
  mute(ms: number): void;
  stall(ms: number): void;
}

export interface Fleet extends AsyncDisposable {
  readonly workers: readonly Post[];
  readonly fronts: readonly Post[];
  readonly counts: { kills: number; stops: number; drains: number; cuts: number; stalls: number; restarts: number };
  /** Resolves when every post has a process that is ready. */
  ready(): Promise<void>;
  /** Ends all processes in good order. */
  close(): Promise<void>;
}

export interface FleetOptions {
  readonly settings: Omit<ProcessSettings, "role" | "database">;
  /** The ways to the database: each is that of one process after the other. */
  readonly workers: readonly Way[];
  readonly fronts: readonly Way[];
  readonly cache: string;
  /** Told of ends that nobody caused. */
  readonly complain: (text: string) => void;
}

/** Starts workers and front ends, each in a process group of its own. */
export function startFleet({ settings, workers, fronts, cache, complain }: FleetOptions): Fleet {
  const counts = { kills: 0, stops: 0, drains: 0, cuts: 0, stalls: 0, restarts: 0 };
  const living = new Set<ChildProcess>();
  const killAll = () => {
    for (const child of living) signal(child, "SIGKILL");
  };
  process.once("exit", killAll);
  let closing = false;

  function post(role: ProcessSettings["role"], index: number, { address, line }: Way) {
    let child: ChildProcess;
    let url: string | null = null;
    let working = false;
    let ready = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    let thaw: NodeJS.Timeout | undefined;

    function start(): void {
      let said = "";
      const own = spawn(
        process.execPath,
        ["--conditions=mcp-tasks-dev", program, JSON.stringify({ ...settings, role, database: address })],
        { detached: true, stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, NODE_COMPILE_CACHE: cache } },
      );
      child = own;
      living.add(own);
      own.stdin.on("error", () => {});
      own.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
      createInterface(own.stdout).once("line", (line) => {
        if (child !== own) return;
        url = (JSON.parse(line) as { url: string | null }).url;
        atWork(own, 250);
        ready.resolve();
      });
      own.once("close", (code, killed) => {
        living.delete(own);
        clearTimeout(thaw);
        thaw = undefined;
        url = null;
        working = false;
        if (code !== 0 && killed !== "SIGKILL" && killed !== "SIGTERM")
          complain(`a ${role} ended with ${code ?? killed}: ${said}`);
        if (closing) return ended.resolve();
        counts.restarts += 1;
        ready = Promise.withResolvers();
        start();
      });
    }

    /** Only who has had some time has something to lose. */
    function atWork(own: ChildProcess, afterMs: number): void {
      setTimeout(() => (working ||= child === own && living.has(own) && thaw === undefined), afterMs).unref();
    }

    start();
    return {
      get name() {
        return `${role} ${index}, process ${child.pid}`;
      },
      url: () => url,
      working: () => working,
      ready: () => ready.promise,
      kill() {
        working = false;
        counts.kills += 1;
        signal(child, "SIGKILL");
      },
      freeze(ms: number) {
        const frozen = child;
        counts.stops += 1;
        working = false;
        signal(frozen, "SIGSTOP");
        clearTimeout(thaw);
        thaw = setTimeout(() => {
          thaw = undefined;
          signal(frozen, "SIGCONT");
          // Its handlers go on now, and find that others have their tasks.
          atWork(frozen, 500);
        }, ms);
      },
      drain() {
        working = false;
        counts.drains += 1;
        signal(child, "SIGTERM");
      },
      cut() {
        counts.cuts += 1;
        line?.cut();
      },
      mute(ms: number) {
        counts.cuts += 1;
        line?.mute(ms);
      },
      stall(ms: number) {
        counts.stalls += 1;
        line?.stall(ms);
      },
      async end() {
        signal(child, "SIGCONT");
        // One that has only just started doesn't yet know what to do about it.
        await Promise.race([ready.promise, ended.promise]);
        signal(child, "SIGTERM");
        await ended.promise;
      },
    };
  }

  const workerPosts = workers.map((way, index) => post("worker", index, way));
  const frontPosts = fronts.map((way, index) => post("front", index, way));
  const all = [...workerPosts, ...frontPosts];
  return {
    workers: workerPosts,
    fronts: frontPosts,
    counts,
    async ready() {
      await Promise.all(all.map((each) => each.ready()));
    },
    async close() {
      await new Promise((resolve) => setTimeout(resolve, 0));
      closing = true;
      await Promise.all(all.map((each) => each.end()));
    },
    async [Symbol.asyncDispose]() {
      closing = true;
      killAll();
      process.removeListener("exit", killAll);
    },
  };
}

/** Signals the child's group: it may have gone by itself. */
function signal({ pid }: ChildProcess, name: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, name);
  } catch {
    // Gone already.
  }
}
