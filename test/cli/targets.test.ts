import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { fakeServer } from "../client/fake-http.ts";
import { completed, created, text, working } from "../client/wire.ts";
import { fixtureProgram, parsed, root, run, shortened, temporaryFolder } from "./program.ts";

const echo = () =>
  fakeServer(({ method, params }, reply) =>
    reply.result(
      method === "tools/call"
        ? { resultType: "complete", ...text(JSON.stringify(params.arguments)) }
        : { tools: [], resultType: "complete", ttlMs: 0, cacheScope: "private" },
    ),
  );

describe("arguments", () => {
  test("have the types of the tool's schema, and where it has none those of JSON", async () => {
    const inputSchema = {
      type: "object",
      properties: { version: { type: "string" }, n: { type: "number" }, dry: { type: "boolean" } },
    };
    await using server = await fakeServer(({ method, params }, reply) => {
      if (method === "tools/list")
        reply.result({ resultType: "complete", tools: [{ name: "x", inputSchema }], ttlMs: 0, cacheScope: "private" });
      else reply.result({ resultType: "complete", ...text(JSON.stringify(params.arguments)) });
    });
    const { stdout } = await run([
      "call",
      "x",
      "--arg",
      "version=1.0",
      "n=2",
      "--arg",
      "dry=yes",
      "list=[1]",
      "word=a=b",
      "--url",
      server.url,
    ]);
    expect(JSON.parse(stdout)).toEqual({ version: "1.0", n: 2, dry: true, list: [1], word: "a=b" });
  });

  test("come as JSON, from a file, and from standard input only where - is said", async () => {
    await using server = await echo();
    const file = path.join(temporaryFolder(), "args.json");
    writeFileSync(file, '{"from":"file"}');
    const call = (source: string, stdin?: string) =>
      run(["call", "x", "--args-json", source, "--url", server.url], stdin === undefined ? {} : { stdin });
    expect((await call('{"from":"line"}')).stdout).toBe('{"from":"line"}\n');
    expect((await call(`@${file}`)).stdout).toBe('{"from":"file"}\n');
    expect((await call("-", '{"from":"stdin"}')).stdout).toBe('{"from":"stdin"}\n');
    expect(await call("-", "nonsense")).toMatchObject({ code: 2 });
    expect((await call('{"from":"line"}', '{"from":"stdin"}')).stdout).toBe('{"from":"line"}\n');
  });
});

describe("headers", () => {
  test("go with every request to their server, and to no other that it points at", async () => {
    const stolen: unknown[] = [];
    const thief = createServer((request, response) => {
      stolen.push(request.headers["x-key"]);
      response.writeHead(200).end();
    });
    await new Promise<void>((resolve) => thief.listen(0, "127.0.0.1", resolve));
    const elsewhere = `http://127.0.0.1:${(thief.address() as AddressInfo).port}/mcp`;
    await using server = await fakeServer(({ method }, reply) =>
      method === "tools/call" ? reply.result(created()) : reply.status(307, { location: elsewhere }),
    );
    const ran = await run(["call", "x", "--url", server.url, "--header", "X-Key: secret", "--wait", "2s", "--json"]);
    thief.close();
    expect(server.seen.every(({ headers }) => headers["x-key"] === "secret")).toBe(true);
    expect(stolen.filter((key) => key !== undefined)).toEqual([]);
    expect(ran.stdout + ran.stderr).not.toContain("secret");
  });

  test("are named, but not shown, in the command that comes next", async () => {
    await using server = await fakeServer((_, reply) => reply.result(created()));
    const { stderr } = await run(["call", "x", "--detach", "--url", server.url, "--header", "X-Key: secret"]);
    expect(stderr).toContain("--header 'X-Key: …'");
    expect(stderr).not.toContain("secret");
  });
});

describe("an mcp.json", () => {
  test("names servers over HTTP, with headers from the environment", async () => {
    await using server = await echo();
    const cwd = temporaryFolder();
    const servers = {
      echo: { type: "http", url: server.url, headers: { "X-Key": "${KEY}", "X-Other": "${OTHER:-none}" } },
    };
    writeFileSync(path.join(cwd, ".mcp.json"), JSON.stringify({ mcpServers: servers }));
    expect(await run(["call", "x", "--server", "echo"], { cwd, env: { KEY: "k" } })).toMatchObject({
      code: 0,
      stdout: "{}\n",
    });
    expect(server.of("tools/call")[0]?.headers).toMatchObject({ "x-key": "k", "x-other": "none" });
    const unset = await run(["call", "x", "--server", "echo"], { cwd });
    expect(unset.code).toBe(2);
    expect(unset.stderr).toContain("environment variable KEY");
    expect((await run(["call", "x", "--server", "other"], { cwd })).stderr).toContain("It has: echo.");
  });

  test("names programs, which run in its folder", async () => {
    const folder = temporaryFolder();
    const servers = { fixture: { command: process.execPath, args: [...fixtureProgram, "--stdio", "--db", "here.db"] } };
    mkdirSync(path.join(folder, "sub"));
    writeFileSync(path.join(folder, "sub/servers.json"), JSON.stringify({ servers }));
    const options = { cwd: folder };
    expect(await run(["call", "greet", "--server", "fixture", "--config", "sub/servers.json"], options)).toMatchObject({
      code: 0,
      stdout: "Hello, World!\n",
    });
    expect((await run(["ls", "--db", path.join(folder, "sub/here.db")])).code).toBe(0);
  });

  test.each(["{", '{"mcpServers":{"a":{}}}', '{"mcpServers":[]}'])(
    "that is no such file is refused: %s",
    async (content) => {
      const cwd = temporaryFolder();
      writeFileSync(path.join(cwd, "mcp.json"), content);
      expect(await run(["tools", "--server", "a"], { cwd })).toMatchObject({ code: 2 });
    },
  );
});

describe("a program", () => {
  test("lives as long as the connection; a detached task goes on when it is started again on its store", async () => {
    const db = path.join(temporaryFolder(), "tasks.db");
    const server = ["--stdio", process.execPath, ...fixtureProgram, "--stdio", "--db", db, "--poll", "250"];
    const { stdout } = await run(["call", "steps", "--arg", "n=3", "ms=200", "--detach", ...server]);
    const id = stdout.trim();
    expect((await run(["ls", "--json", ...server])).stdout).toContain(id);
    const { code, stdout: result } = await run(["result", shortened(id), ...server]);
    expect({ code, result }).toEqual({ code: 0, result: "3 steps\n" });
  });

  test("may print what it likes on standard error, and is heard without --json only", async () => {
    const noisy = path.join(temporaryFolder(), "noisy.mjs");
    writeFileSync(
      noisy,
      `process.stderr.write("noise\\u001b[2J\\n"); await import(${JSON.stringify(path.join(root, "test/client/fake-stdio.ts"))});`,
    );
    const args = ["--stdio", process.execPath, "--conditions=mcp-tasks-dev", noisy];
    expect((await run(["call", "plain", ...args])).stderr).toMatch(/^\| noise\n$/);
    expect(parsed(await run(["call", "plain", "--json", ...args])).error).toBeUndefined();
  });
});

describe("short ids", () => {
  test("mean the one task that they begin, of this server alone", async () => {
    const state = ["--state", temporaryFolder()];
    const serve = (id: string) =>
      fakeServer(({ method, params }, reply) => {
        if (method === "tools/call") reply.result(created({ taskId: `${id}-${String(params.name)}` }));
        else reply.result(working({ taskId: params.taskId }));
      });
    await using one = await serve("abcdef");
    await using two = await serve("ghijkl");
    for (const name of ["first", "second"]) await run(["call", name, "--detach", "--url", one.url, ...state]);
    await run(["call", "first", "--detach", "--url", two.url, ...state]);
    const get = (id: string, { url }: { url: string }) => run(["get", id, "--json", "--url", url, ...state]);
    expect(parsed(await get("abcdef-f", one)).document.taskId).toBe("abcdef-first");
    expect(await get("abcdef", one)).toMatchObject({ code: 2 });
    expect(parsed(await get("ghij", two)).document.taskId).toBe("ghijkl-first");
    // Another server is asked about this one's task neither by a short id nor by the whole one.
    expect(parsed(await get("abcdef-first", two)).error).toMatchObject({ code: "OTHER_SERVER" });
    expect(two.of("tasks/get").map(({ params }) => params.taskId)).not.toContain("abcdef-first");
    const { tasks } = parsed(await run(["ls", "--json", ...state])).document;
    expect(tasks.map((task: any) => task.taskId)).toEqual(["abcdef-first", "abcdef-second", "ghijkl-first"]);
    const { stdout } = await run(["ls", "--url", one.url, ...state]);
    expect(stdout).toMatch(/^ID +STATUS +TOOL +AGE +SERVER\nabcdef-f .*\nabcdef-s .*\n$/);
  });

  test("an id may begin with a dash", async () => {
    await using server = await fakeServer((_, reply) =>
      reply.result(completed("done", { taskId: "-bcdefghij_lmnopqrstuv" })),
    );
    expect(await run(["result", "-bcdefghij_lmnopqrstuv", "--url", server.url])).toMatchObject({
      code: 0,
      stdout: "done\n",
    });
  });

  test("four characters of an id are enough where the first is a dash", async () => {
    const id = "-XD0efghij_lmnopqrstuv";
    await using server = await fakeServer(({ method }, reply) =>
      reply.result(method === "tools/call" ? created({ taskId: id }) : working({ taskId: id })),
    );
    await run(["call", "first", "--detach", "--url", server.url]);
    const ran = await run(["get", "-XD0", "--json", "--url", server.url]);
    expect(parsed(ran)).toMatchObject({ document: { taskId: id }, error: undefined });
  });
});
