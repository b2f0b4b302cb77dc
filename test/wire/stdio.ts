import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { createWire, type Wire, type WireOptions } from "./client.ts";
import { frames, type Message } from "./messages.ts";
import { checkNotification } from "./shapes.ts";

/** A client of a server that it started as a process of its own. */
export interface StdioWire extends Wire, AsyncDisposable {
  readonly child: ChildProcessWithoutNullStreams;
  /** Every line that came, as it came. */
  readonly lines: readonly string[];
  /** Sends a message that needs no answer. */
  notify(method: string, params: Record<string, unknown>): void;
  /** Ends the input; resolves with the exit code when the process and its output have ended. */
  close(): Promise<number | null>;
}

export interface StdioWireOptions extends WireOptions {
  /** What goes before the command, to run it somewhere else. */
  readonly enter?: readonly string[];
}

/** Starts `node ...args`, after the words of `enter`, and speaks with it over its standard input and output. */
export function stdioWire(args: readonly string[], options: StdioWireOptions = {}): StdioWire {
  const [command = "", ...words] = [...(options.enter ?? []), process.execPath, ...args];
  const child = spawn(command, words, { stdio: ["pipe", "pipe", "pipe"] });
  child.stderr.resume();
  child.stdin.on("error", () => {});
  const gone = once(child, "close");
  const lines: string[] = [];
  const messages: Message[] = [];
  const wakers = new Set<() => void>();
  let ended = false;
  const wake = () => {
    for (const wake of wakers) wake();
  };
  const output = createInterface({ input: child.stdout });
  output.on("line", (line) => {
    lines.push(line);
    messages.push(JSON.parse(line) as Message);
    wake();
  });
  void gone.then(() => {
    ended = true;
    wake();
  });

  /** All messages from the first one on, until told to stop or the process ends. */
  async function* from(start: number, stopped: () => boolean): AsyncGenerator<Message> {
    for (let at = start; ; at++) {
      while (at >= messages.length && !ended && !stopped())
        await new Promise<void>((resolve) => {
          const woken = () => {
            wakers.delete(woken);
            resolve();
          };
          wakers.add(woken);
        });
      const message = messages[at];
      if (message === undefined || stopped()) return;
      checkNotification(message);
      yield message;
    }
  }

  const write = (text: string) => child.stdin.write(`${text}\n`);
  const notify = (method: string, params: Record<string, unknown>) =>
    write(JSON.stringify({ jsonrpc: "2.0", method, params }));
  const close = async () => {
    child.stdin.end();
    const [code] = (await gone) as [number | null];
    return code;
  };

  const verbs = createWire(
    {
      async send(message, how) {
        const start = messages.length;
        write(how.raw ?? JSON.stringify(message));
        const before: Message[] = [];
        for await (const body of from(start, () => false)) {
          if (body.method === undefined && body.id === message.id)
            return { status: 200, headers: new Headers(), body, before };
          before.push(body);
        }
        throw new Error(`the process ended without an answer to ${message.method}`);
      },
      async open(message, how) {
        const start = messages.length;
        let stopped = false;
        write(how.raw ?? JSON.stringify(message));
        const stop = () => {
          notify("notifications/cancelled", { requestId: message.id });
          stopped = true;
          wake();
        };
        const all = from(start, () => stopped);
        return frames(belonging(all, message.id!), { id: message.id!, status: 200, stop });
      },
    },
    options,
  );
  return { ...verbs, child, lines, notify, close, [Symbol.asyncDispose]: async () => void (await close()) };
}

/** What belongs to one subscription on the shared channel, its answer included, which ends it. */
async function* belonging(all: AsyncIterable<Message>, id: string | number): AsyncGenerator<Message> {
  for await (const message of all) {
    const answer = message.method === undefined && message.id === id;
    if (answer || message.params?._meta?.["io.modelcontextprotocol/subscriptionId"] === id) yield message;
    if (answer) return;
  }
}
