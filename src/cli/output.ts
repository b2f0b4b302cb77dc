import type { CallToolResult } from "@modelcontextprotocol/client";
import { TaskError } from "../errors.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import type { CliError } from "./exit.ts";
import { createLive, type Live } from "./live.ts";
import { clean, json, oneLine } from "./text.ts";

/** A task, or a call that never was one, as `--json` shows it. */
export interface Document {
  readonly taskId?: string;
  readonly status: string;
  readonly statusMessage?: string;
  readonly result?: unknown;
  readonly error?: unknown;
  readonly inputRequests?: unknown;
}

/** All that a command writes: results go to stdout, all else to stderr. */
export interface Output {
  readonly json: boolean;
  /** Whether there is a person to ask. */
  readonly canAsk: boolean;
  /** Whether a line can be drawn anew. */
  readonly isTerminal: boolean;
  readonly live: Live;
  /** A line for people. Nothing with `--json`. */
  say(text: string): void;
  /** What was asked for, for people. Nothing with `--json`. */
  print(text: string): void;
  /** One JSON document. Nothing without `--json`. */
  document(value: object): void;
  /** How many documents there were. */
  readonly documents: number;
  error(error: CliError): void;
  /** Resolves when all that was written to stdout has left this process. */
  flushed(): Promise<void>;
}

/** `CI` and `TERM=dumb` mean lines rather than drawings; with `CI` or `--json` nobody is asked. */
export function createOutput(asJson: boolean): Output {
  const { CI = "", TERM, NO_COLOR = "" } = process.env;
  const attended = !asJson && process.stderr.isTTY && (CI === "" || CI === "false");
  const isTerminal = attended && TERM !== "dumb";
  const live = createLive(process.stderr, isTerminal, isTerminal && NO_COLOR === "");
  let documents = 0;
  const say = (text: string) => live.above(() => process.stderr.write(`${text}\n`));

  return {
    json: asJson,
    canAsk: attended && process.stdin.isTTY,
    isTerminal,
    live,
    get documents() {
      return documents;
    },
    say(text) {
      if (!asJson) say(text);
    },
    print(text) {
      if (!asJson) live.above(() => process.stdout.write(text.endsWith("\n") ? text : `${text}\n`));
    },
    document(value) {
      if (!asJson) return;
      documents += 1;
      process.stdout.write(`${json(value)}\n`);
    },
    error({ code, exit, message, taskId, next }) {
      if (asJson) {
        process.stderr.write(`${json({ error: { code, message, exit, taskId, next } })}\n`);
        return;
      }
      say(`mcp-tasks: ${clean(message).trim()}`);
      if (next !== undefined) say(`  ${next}`);
    },
    // A failure ends the process (program.ts).
    flushed: () => new Promise((resolve) => process.stdout.write("", (failure) => failure ?? resolve())),
  };
}

/** The document of an end without a task to show: the server's error where it answered with one, otherwise ours. */
export function errorDocument({ code, message, cause }: CliError): Document {
  return cause instanceof TaskError && cause.code === "CALL_FAILED"
    ? { status: "failed", error: cause.toRpc() }
    : { status: "unknown", error: { code, message } };
}

/** The task as its document. `result` is what the tool returned: the envelope's `resultType` is none of it. */
export function documentOf(task: DetailedTask): Document {
  const { taskId, status, statusMessage } = task;
  return {
    taskId,
    status,
    ...(statusMessage === undefined ? {} : { statusMessage }),
    ...(task.status === "completed" ? { result: toolResult(task.result) } : {}),
    ...(task.status === "failed" ? { error: task.error } : {}),
    ...(task.status === "input_required" ? { inputRequests: task.inputRequests } : {}),
  };
}

function toolResult(result: Readonly<Record<string, unknown>>): unknown {
  const { resultType: _, ...own } = result;
  return own;
}

/** A tool's result in words. What no terminal can show is named. */
export function resultText({ content, structuredContent }: CallToolResult): string {
  const parts = content.map((part) => {
    switch (part.type) {
      case "text":
        return clean(part.text);
      case "image":
      case "audio":
        return `[${part.type}, ${oneLine(part.mimeType)}, ${Buffer.byteLength(part.data, "base64")} bytes]`;
      case "resource_link":
        return `[${oneLine(part.name)}: ${oneLine(part.uri)}]`;
      case "resource":
        return "text" in part.resource ? clean(part.resource.text) : `[${oneLine(part.resource.uri)}]`;
      default:
        return "[content of an unknown kind]";
    }
  });
  if (parts.length === 0 && structuredContent !== undefined) return json(structuredContent, 2);
  return parts.join("\n");
}

/** A tool's result as a file: the bytes of a single picture or sound, the text of text, and otherwise all of it as JSON. */
export function resultBytes(result: CallToolResult): Buffer {
  const { content } = result;
  const [first] = content;
  if (content.length === 1 && (first?.type === "image" || first?.type === "audio"))
    return Buffer.from(first.data, "base64");
  const texts = content.flatMap((part) => (part.type === "text" ? [part.text] : []));
  if (texts.length > 0 && texts.length === content.length) return Buffer.from(`${texts.join("\n")}\n`);
  return Buffer.from(`${json(result, 2)}\n`);
}
