import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { TaskError } from "../../src/errors.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { taskTool } from "../../src/tool.ts";
import { headerValue, type Message, type Reply, type Wire } from "../wire/client.ts";
import { bench, text, type Bench } from "./bench.ts";
import { folder, nodeArgs, program, rawRequest, until } from "./setup.ts";

/* What nobody should send, and files that nobody should find: a clear error of the right code, and nothing lost. */

const strict = taskTool({
  name: "strict",
  inputSchema: z.object({ count: z.int(), name: z.string().max(10) }),
  run: ({ name }) => text(name),
});
const asks = taskTool({
  name: "asks",
  async run(_args, task) {
    const [form, thought, roots] = await Promise.all([
      task.elicit("form", { message: "?", schema: z.object({ n: z.int().min(1), ok: z.boolean() }) }),
      task.sample("think", { messages: [], maxTokens: 1 }),
      task.roots("roots"),
    ]);
    return text(`${form.n} ${thought.model} ${roots.length}`);
  },
});

/** An error may say what is wrong, and nothing of the inside. */
function discreet(error: Message["error"] | string | undefined): void {
  const said = typeof error === "string" ? error : JSON.stringify(error);
  expect(said).not.toMatch(
    /\bat .+:\d+:\d+|node_modules|\/(work|tmp|home|usr|src)\/|\.ts\b|\bSELECT\b|\bINSERT\b|SQLITE|sqlite|ERR_/,
  );
}

function refused({ status, body }: Reply, rpc: number, http = 200): void {
  expect([status, body.error?.code], JSON.stringify(body)).toEqual([http, rpc]);
  expect(body.error?.message).toMatch(/\w+ \w+/);
  discreet(body.error);
}

let shared: Bench;
let client: Wire;
beforeAll(async () => {
  shared = await bench([strict, asks]);
  client = shared.wire();
});
afterAll(async () => {
  expect(shared.errors.filter(({ code }) => code !== "ANSWER_REFUSED")).toEqual([]);
  await shared[Symbol.asyncDispose]();
});
const tasksMade = async () => (await shared.store.list({ limit: 1_000 })).length;

describe("calls", () => {
  test("a call of an unknown tool is an error that names no inside", async () => {
    const had = await tasksMade();
    for (const name of ["nope", "", "__proto__", "constructor", "x".repeat(10_000)])
      refused(await client.call(name), -32602);
    expect(await tasksMade()).toBe(had);
  });

  const wrong: Record<string, unknown> = {
    "none at all": {},
    "the wrong types": { count: "one", name: 1 },
    "a number that is not whole": { count: 1.5, name: "x" },
    "a text that is too long": { count: 1, name: "x".repeat(11) },
    "a prototype": JSON.parse('{"__proto__":{"count":1,"name":"x"}}') as object,
  };
  test.each(Object.keys(wrong))("a call whose arguments are %s makes no task", async (kind) => {
    const had = await tasksMade();
    const { body } = await client.call("strict", wrong[kind] as Record<string, unknown>);
    expect(body.result?.resultType).not.toBe("task");
    expect(body.error?.code ?? body.result?.isError).toBe(body.error === undefined ? true : -32602);
    discreet(JSON.stringify(body));
    expect(await tasksMade()).toBe(had);
  });

  test.each([[[1, 2]], ["words"], [7], [null]])("a call whose arguments are %j is refused", async (args) => {
    const had = await tasksMade();
    const { body } = await client.request("tools/call", { name: "strict", arguments: args });
    expect(body.error?.code ?? body.result?.isError).toBe(body.error === undefined ? true : -32602);
    discreet(JSON.stringify(body));
    expect(await tasksMade()).toBe(had);
  });
});

describe("ids", () => {
  const ids = {
    "an unknown one": "AAAAAAAAAAAAAAAAAAAAAA",
    "an empty one": "",
    "a path": "../../etc/passwd",
    SQL: "' OR 1=1; DROP TABLE task; --",
    "a nul": "AAAA\u0000AAAA",
    "letters of another alphabet": "задача",
    "a lone surrogate": "\ud800",
    "one of 5,000 letters": "A".repeat(5_000),
  };
  const methods = ["tasks/get", "tasks/update", "tasks/cancel"] as const;

  test.each(Object.entries(ids))("%s is no task, for every method", async (_, taskId) => {
    for (const method of methods) {
      const headers = { "mcp-name": headerValue(taskId.toWellFormed()) };
      const params = method === "tasks/update" ? { taskId, inputResponses: {} } : { taskId };
      const reply = await client.request(method, params, { headers });
      // What a header can't carry can't match it either.
      if (reply.status !== 400) refused(reply, -32602);
      else expect(reply.body.error?.code).toBe(-32020);
      discreet(reply.body.error);
    }
  });

  test.each([[undefined], [null], [7], [{}], [["AAAAAAAAAAAAAAAAAAAAAA"]], [true]])(
    "the id %j is no id at all",
    async (taskId) => {
      for (const method of methods) {
        const reply = await client.request(method, { ...(taskId === undefined ? {} : { taskId }), inputResponses: {} });
        expect([-32602, -32020]).toContain(reply.body.error?.code);
        discreet(reply.body.error);
      }
    },
  );

  test("an id of a hundred thousand letters is refused, and the server goes on", async () => {
    const taskId = "A".repeat(100_000);
    const reply = await client.get(taskId, { headers: { "mcp-name": null } });
    expect([-32602, -32020]).toContain(reply.body.error?.code);
    discreet(reply.body.error);
    expect((await client.call("strict", { count: 1, name: "x" })).body.result?.resultType).toBe("task");
  });
});

describe("bodies", () => {
  const post = async (
    body: string | Uint8Array<ArrayBuffer>,
    headers = rawRequest("tasks/get", { taskId: "x" }).headers,
  ) => {
    const response = await fetch(shared.url, { method: "POST", headers, body });
    const said = await response.text();
    discreet(said);
    return { status: response.status, body: (said === "" ? {} : JSON.parse(said)) as Message };
  };

  test.each(["{", "", "nonsense", '{"jsonrpc":"2.0",', "\u0000", "[".repeat(100_000)])(
    "a body that is no JSON is 400 and -32700 (%#)",
    async (body) => {
      const { status, body: answer } = await post(body);
      expect([status, answer.error?.code]).toEqual([400, -32700]);
    },
  );

  test("a body of broken UTF-8 is refused or means nothing, and no more", async () => {
    const { status } = await post(new Uint8Array([0x7b, 0xff, 0xfe, 0x7d]));
    expect(status).toBe(400);
  });

  test.each([
    "null",
    "7",
    '"words"',
    "{}",
    "[]",
    '{"jsonrpc":"1.0","id":1,"method":"tasks/get"}',
    '{"jsonrpc":"2.0","id":{},"method":"tasks/get"}',
  ])("JSON that is no JSON-RPC request is 400: %s", async (body) => {
    const { status, body: answer } = await post(body);
    expect([status, answer.error?.code]).toEqual([400, -32600]);
  });

  test("a body above the limit is 413, whether it says its length or not", async () => {
    const { headers, body } = rawRequest("tools/call", {
      name: "strict",
      arguments: { count: 1, name: "x".repeat(5 << 20) },
    });
    expect((await post(body, headers)).status).toBe(413);
    const chunks = new ReadableStream<Uint8Array>({
      start(controller) {
        const bytes = new TextEncoder().encode(body);
        for (let at = 0; at < bytes.length; at += 65_536) controller.enqueue(bytes.slice(at, at + 65_536));
        controller.close();
      },
    });
    const streamed = await fetch(shared.url, {
      method: "POST",
      headers,
      body: chunks,
      duplex: "half",
    });
    expect(streamed.status).toBe(413);
    await streamed.text();
    expect((await client.call("strict", { count: 1, name: "x" })).body.result?.resultType).toBe("task");
  });

  test("arguments nested a hundred thousand deep end nothing but their own call", async () => {
    const { headers } = rawRequest("tools/call", { name: "strict", arguments: {} });
    const { body } = rawRequest("tools/call", { name: "strict", arguments: { count: "DEEP" } });
    const deep = body.replace('"DEEP"', "[".repeat(100_000) + "]".repeat(100_000));
    const { status } = await post(deep, headers);
    expect(status).toBeGreaterThanOrEqual(200);
    expect((await client.call("strict", { count: 1, name: "x" })).body.result?.resultType).toBe("task");
  });
});

describe("answers", () => {
  const good = {
    form: { action: "accept", content: { n: 1, ok: true } },
    think: { role: "assistant", content: { type: "text", text: "hm" }, model: "m" },
    roots: { roots: [{ uri: "file:///x" }] },
  };
  const wrong: [string, unknown][] = [
    ["form", 7],
    ["form", "yes"],
    ["form", null],
    ["form", []],
    ["form", {}],
    ["form", { action: "perhaps" }],
    ["form", { action: "accept" }],
    ["form", { action: "accept", content: null }],
    ["form", { action: "accept", content: { n: "1", ok: true } }],
    ["form", { action: "accept", content: { n: 0, ok: true } }],
    ["form", { action: "accept", content: { n: 1.5, ok: true } }],
    ["form", { action: "accept", content: { n: 1, ok: { deep: true } } }],
    ["form", { action: "decline", content: { n: 1, ok: true } }],
    ["form", { result: { action: "accept", content: { n: 1, ok: true } } }],
    ["think", { role: "assistant" }],
    ["think", { role: "robot", content: { type: "text", text: "hm" }, model: "m" }],
    ["think", good.form],
    ["roots", {}],
    ["roots", { roots: "none" }],
    ["roots", { roots: [{ name: "no uri" }] }],
    ["__proto__", good.form],
    ["constructor", good.form],
  ];

  test("answers of the wrong type are acknowledged, take no effect and lose nothing", async () => {
    const id = await client.start("asks");
    const open = await client.until(id, "input_required");
    for (const [key, answer] of wrong) {
      const responses = JSON.parse(`{${JSON.stringify(key)}:${JSON.stringify(answer)}}`) as object;
      const { body } = await client.update(id, responses);
      if (body.error !== undefined) expect(body.error.code).toBe(-32602);
      discreet(JSON.stringify(body));
      const task = (await client.get(id)).body.result;
      const kept = [key, answer, task?.status, Object.keys(task?.inputRequests ?? {})];
      expect(kept).toEqual([key, answer, "input_required", Object.keys(open.inputRequests ?? {})]);
      discreet(task?.statusMessage ?? "");
    }
    await client.update(id, good);
    expect((await client.until(id)).result?.content?.[0]?.text).toBe("1 m 1");
  });

  test.each([[undefined], [null], [7], ["all"], [[good.form]], [true]])(
    "inputResponses that are %j are refused",
    async (inputResponses) => {
      const id = await client.start("asks");
      await client.until(id, "input_required");
      refused(await client.update(id, inputResponses), -32602);
      await client.cancel(id);
    },
  );

  test("ten thousand answers to nothing are acknowledged and forgotten", async () => {
    const id = await client.start("asks");
    const open = await client.until(id, "input_required");
    const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`key-${index}`, good.form]));
    expect((await client.update(id, many)).body.error).toBeUndefined();
    const task = (await client.get(id)).body.result;
    expect([task?.inputRequests, task?.lastUpdatedAt]).toEqual([open.inputRequests, open.lastUpdatedAt]);
    await client.cancel(id);
  });
});

describe("subscriptions", () => {
  const listen = async (taskIds: unknown) =>
    (await client.request("subscriptions/listen", { notifications: { taskIds } })).body;

  test.each([["all"], [7], [{ 0: "x" }], [true], [[7]], [["x", null]], [[["x"]]]])(
    "taskIds that are %j are refused",
    async (taskIds) => {
      const first = await listen(taskIds);
      expect(first.error?.code).toBe(-32602);
      discreet(first.error);
    },
  );

  test("ten thousand taskIds are refused in words", async () => {
    const first = await listen(Array.from({ length: 10_000 }, (_, index) => `id-${index}`));
    expect(first.error?.code).toBe(-32602);
    expect(first.error?.message).toContain("1000");
    discreet(first.error);
  });
});

describe("database files", () => {
  /** What opening says; it must throw. */
  function opening(file: string): TaskError {
    try {
      const store = sqlite(file);
      void store[Symbol.asyncDispose]();
    } catch (thrown) {
      expect(thrown).toBeInstanceOf(TaskError);
      discreet((thrown as TaskError).message);
      return thrown as TaskError;
    }
    throw new Error("The file was opened");
  }

  /** Starts the fixture on a file that it can't use; its exit code, after which the file must be as before. */
  async function fixtureOn(file: string, uid?: number): Promise<number | null> {
    const child = spawn(process.execPath, nodeArgs("fixture/main.ts", ["--db", file]), {
      stdio: ["ignore", "pipe", "pipe"],
      ...(uid === undefined ? {} : { uid }),
    });
    let said = "";
    child.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
    child.stdout.once("data", () => child.kill("SIGKILL"));
    const [code] = (await once(child, "close")) as [number | null];
    expect(said).toMatch(/task store can.t be opened/);
    discreet(said);
    return code;
  }

  /** Makes a database with one finished task in it; the task's id. */
  async function filled(file: string): Promise<string> {
    await using own = await bench([strict], { file });
    const wire = own.wire();
    const id = await wire.start("strict", { count: 1, name: "kept" });
    await wire.until(id);
    return id;
  }

  test("a file that is no database is refused and left as it is", async () => {
    using files = folder();
    const file = files.file("notes.txt");
    writeFileSync(file, "These are my notes. ".repeat(500));
    const before = readFileSync(file);
    expect(opening(file).code).toBe("STORE_UNREADABLE");
    expect(await fixtureOn(file)).not.toBe(0);
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test("another program's database is refused and left as it is", () => {
    using files = folder();
    const file = files.file("other.db");
    const db = new DatabaseSync(file);
    db.exec("CREATE TABLE task (mine TEXT); INSERT INTO task VALUES ('precious')");
    db.close();
    const before = readFileSync(file);
    expect(opening(file).code).toBe("STORE_UNREADABLE");
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test("a database of a newer version is refused", () => {
    using files = folder();
    const file = files.file("tasks.db");
    void sqlite(file)[Symbol.asyncDispose]();
    const db = new DatabaseSync(file);
    db.exec("PRAGMA user_version = 9999");
    db.close();
    expect(opening(file).code).toBe("STORE_NEWER");
  });

  test.each(["a folder", "a file in a folder that isn't there", "an empty name"])(
    "%s in place of a file is refused",
    (kind) => {
      using files = folder();
      const file = { "a folder": files.path, "an empty name": "" }[kind] ?? files.file("none/tasks.db");
      expect(opening(file).code).toBe("STORE_UNREADABLE");
    },
  );

  test("a database without half of its bytes is refused", async () => {
    using files = folder();
    const file = files.file("tasks.db");
    await filled(file);
    truncateSync(file, Math.floor(statSync(file).size / 2));
    const { code } = opening(file);
    expect(code).toBe("STORE_UNREADABLE");
    expect(await fixtureOn(file)).not.toBe(0);
  });

  test.runIf(process.getuid?.() === 0)("a file that may not be written to is refused", async () => {
    using files = folder();
    const file = files.file("tasks.db");
    await filled(file);
    chmodSync(files.path, 0o555);
    chmodSync(file, 0o444);
    const nobody = 65_534;
    expect(await fixtureOn(file, nobody)).not.toBe(0);
  });

  test("a store that was closed under a running server gives a clear error", async () => {
    const own = await bench([strict]);
    const wire = own.wire();
    const id = await wire.start("strict", { count: 1, name: "x" });
    await wire.until(id);
    await own.store[Symbol.asyncDispose]();
    refused(await wire.get(id), -32603);
    refused(await wire.cancel(id), -32603);
    refused(await wire.call("strict", { count: 1, name: "x" }), -32603);
    const stream = await wire.listen([id]);
    expect((await stream.next())?.error?.code).toBe(-32603);
    await own.tasks.close();
  });

  test("a file that is damaged under a running server gives clear errors, and what was acknowledged comes back with it", async () => {
    using files = folder();
    const file = files.file("tasks.db");
    await using server = await program(["--db", file]);
    const id = await server.wire.start("journal", { tag: "kept" });
    await server.wire.until(id);
    const healthy = new DatabaseSync(file);
    healthy.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    healthy.close();
    copyFileSync(file, `${file}.backup`);
    const size = statSync(file).size;
    // In place, so that the running server sees it; the write makes it read its pages again.
    writeFileSync(file, Buffer.alloc(size, 0xa5), { flag: "r+" });
    const other = await server.wire.call("journal", { tag: "lost" });
    const failing = await until("the damage shows", async () => {
      const reply = await server.wire.get(id);
      return reply.body.error === undefined ? undefined : reply;
    });
    refused(failing, -32603);
    if (other.body.error !== undefined) refused(other, -32603);
    expect((await server.wire.call("greet", { name: "you" })).body.result?.content?.[0]?.text).toBe("Hello, you!");
    await server.stop("SIGKILL");

    for (const end of ["-wal", "-shm"]) rmSync(file + end, { force: true });
    renameSync(`${file}.backup`, file);
    await using again = await program(["--db", file]);
    expect((await again.wire.get(id)).body.result?.status).toBe("completed");
  });

  test.each(["removed", "replaced by a backup"])(
    "a file that is %s under a running server takes no more acknowledgements, which would be lost",
    async (kind) => {
      using files = folder();
      const file = files.file("tasks.db");
      const old = await filled(file);
      const backup = files.file("backup.db");
      copyFileSync(file, backup);
      await using server = await program(["--db", file]);
      const { wire } = server;
      expect((await wire.get(old)).body.result?.status).toBe("completed");
      if (kind === "removed") for (const end of ["", "-wal", "-shm"]) rmSync(file + end);
      else renameSync(backup, file);
      refused(await wire.call("journal", { tag: "lost" }), -32603);
      refused(await wire.cancel(old), -32603);
      refused(await wire.get(old), -32603);
      await server.stop("SIGKILL");
      if (kind === "removed") return;
      // A log of the old file beside the new one is SQLite's to recognise.
      await using again = await program(["--db", file]);
      expect((await again.wire.get(old)).body.result?.status).toBe("completed");
    },
  );

  test("a file that is moved together with its log loses nothing", async () => {
    using files = folder();
    const file = files.file("tasks.db");
    await using server = await program(["--db", file]);
    const id = await server.wire.start("journal", { tag: "before" });
    await server.wire.until(id);
    for (const end of ["", "-wal", "-shm"]) renameSync(file + end, `${files.file("moved.db")}${end}`);
    refused(await server.wire.call("journal", { tag: "after" }), -32603);
    await server.stop("SIGKILL");
    await using moved = await program(["--db", files.file("moved.db")]);
    expect((await moved.wire.get(id)).body.result?.status).toBe("completed");
  });
});
