import { stderr, stdin, stdout } from "node:process";
import { Writable, type Readable } from "node:stream";
import { setImmediate } from "node:timers/promises";
import type { McpServerFactory } from "@modelcontextprotocol/server";
import { serveStdio as serveSdk, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { requireWhole, TaskError } from "../errors.ts";
import { boundedLines } from "./lines.ts";
import { streamLimits } from "./listen.ts";
import { answerTo } from "./methods.ts";
import { taskServers, type ServerParts } from "./server.ts";
import { taskWire } from "./wire.ts";

/** How tasks are served over standard input and output. */
export interface StdioOptions {
  /** Where requests come from. Default: the process's standard input. */
  readonly input?: Readable;
  /**
   * Where answers go. Default: the process's standard output; whatever else writes there is sent to standard error
   * meanwhile, so that a stray line corrupts nothing.
   */
  readonly output?: Writable;
  /** The largest message, in bytes. Default 4 MiB. */
  readonly maxMessageBytes?: number;
  /** Subscriptions, or waits of an older client for results, that may be open. Default 100. */
  readonly maxStreams?: number;
  /** Tasks that one subscription may name. Default 1 000. */
  readonly maxTaskIds?: number;
  /** How long requests may take to be answered after the input ended, in milliseconds. Default 2 000. */
  readonly drainMs?: number;
}

/** A connection over standard input and output. */
export interface StdioHandle {
  /** Resolves when the connection is closed, by either side. */
  readonly closed: Promise<void>;
  close(): Promise<void>;
}

/** Serves tasks over stdio (core specification, "Transports"). The client hangs up by ending the input. */
export function serveStdio(parts: ServerParts, factory: McpServerFactory, options: StdioOptions = {}): StdioHandle {
  const { input = stdin, drainMs = 2_000, maxStreams = 100, maxTaskIds = 1_000 } = options;
  const { maxMessageBytes = 4 * 1024 * 1024 } = options;
  requireWhole(0, { drainMs, maxStreams, maxTaskIds });
  requireWhole(1, { maxMessageBytes });
  const guard = options.output === undefined ? guardStdout() : { output: options.output, release() {} };
  const onError = (error: unknown) => void answerTo(error, parts.onError);
  const servers = taskServers(parts, factory, streamLimits(maxStreams, maxStreams));
  const { promise: closed, resolve: resolveClosed } = Promise.withResolvers<void>();
  const source = boundedLines(maxMessageBytes, () => {
    const error = new TaskError("TOO_LARGE", { detail: `It may have ${maxMessageBytes} bytes.` }).toRpc();
    transport.send({ jsonrpc: "2.0", error }).catch(onError);
  });
  // The room is for the mark and the line feed that a line gets in place of its rest.
  const transport = new StdioServerTransport(source, guard.output, { maxBufferSize: maxMessageBytes + 2 });
  const wire = taskWire(parts, transport, { maxStreams, maxTaskIds, onError });
  const sdk = serveSdk(servers.factory, { transport: wire.transport, onerror: onError });

  async function end(): Promise<void> {
    // What was asked before the client hung up is answered, if it doesn't take long.
    do await setImmediate();
    while (source.readableLength > 0);
    await wire.answered(drainMs);
    // What takes longer is told so.
    await servers.stop();
    source.end();
  }
  const ended = () => void end();
  input.pipe(source, { end: false });
  input.once("end", ended).once("close", ended);

  async function finish(): Promise<void> {
    input.off("end", ended).off("close", ended);
    input.unpipe(source);
    input.pause();
    await servers.stop();
    guard.release();
    resolveClosed();
  }
  void wire.closed.then(finish);

  return {
    closed,
    async close() {
      await servers.stop();
      await sdk.close();
      await closed;
    },
  };
}

/** Keeps standard output for the protocol: what others print goes to standard error. */
function guardStdout(): { readonly output: Writable; release(): void } {
  const write = stdout.write.bind(stdout);
  const output = new Writable({
    write: (chunk: Uint8Array, _encoding, written) => void write(chunk, (error) => written(error)),
  });
  // Each message that waits for a slow reader listens, and there may be any number of them.
  output.setMaxListeners(0);
  const before = stdout.write;
  stdout.write = stderr.write.bind(stderr);
  // A client that is gone is noticed by the write that failed; nobody else must stumble over it.
  stdout.on("error", () => {});
  return {
    output,
    release() {
      stdout.write = before;
    },
  };
}
