import { appendFileSync, existsSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fakeServer } from "../client/fake-http.ts";
import { ack, asking, cancelled, completed, created, failed, form, text, working } from "../client/wire.ts";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { documents, parsed, run, shortened, start, temporaryFolder } from "./program.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture(["--poll", "250"]);
});
afterAll(() => fixture[Symbol.asyncDispose]());

const at = (...words: string[]) => [...words, "--url", fixture.url];
const detached = async (...words: string[]) => (await run(at("call", ...words, "--detach"))).stdout.trim();

/** Red, a window title, a bell, an 8-bit CSI, an override of the writing direction, and what clears the screen. */
const evil = "a\u001B[31mb\u001B]0;title\u0007c\u0007d\u009B2Je\u202Ef\u001Bcg\rh";

describe("a server's text", () => {
  const server = () =>
    fakeServer(({ method }, reply) => {
      if (method === "tools/call") reply.result(created({ statusMessage: evil }));
      else if (method === "tools/list")
        reply.result({
          resultType: "complete",
          tools: [{ name: "x", description: evil, inputSchema: { type: "object" } }],
          ttlMs: 0,
          cacheScope: "private",
        });
      else reply.result(completed(evil, { statusMessage: evil }));
    });

  test.each([["call", "x"], ["result", "task-1"], ["get", "task-1"], ["tools"]])(
    "steers no terminal, whatever is in it: %s",
    async (...words) => {
      await using fake = await server();
      const { code, stdout, stderr } = await run([...words, "--url", fake.url]);
      expect(code).toBe(0);
      // oxlint-disable-next-line no-control-regex -- what must not be there
      expect(stdout + stderr).not.toMatch(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202A-\u202E]/);
      expect(stdout).toContain("abcdefgh");
    },
  );

  test("is untouched in a document, where it is escaped, and in a file", async () => {
    await using fake = await server();
    const ran = await run(["call", "x", "--json", "--url", fake.url]);
    expect(parsed(ran).document.result).toEqual(text(evil));
    // oxlint-disable-next-line no-control-regex -- what must not be there
    expect(ran.stdout).not.toMatch(/[\u0000-\u0009\u000B-\u001F\u007F-\u009F\u202A-\u202E]/);
    const file = path.join(temporaryFolder(), "out");
    expect((await run(["result", "task-1", "-o", file, "--url", fake.url])).code).toBe(0);
    expect(readFileSync(file, "utf8")).toBe(`${evil}\n`);
  });

  test("an error's message is clean, too", async () => {
    await using fake = await fakeServer((_, reply) => reply.error(-32000, evil));
    const { stderr } = await run(["call", "x", "--url", fake.url]);
    expect(stderr).toContain("mcp-tasks: abcdefgh\n");
  });
});

describe("documents", () => {
  test.each([
    ["nul", text("before\u0000after")],
    ["surrogate", text("before\ud800after")],
    ["emoji", text("👩‍👩‍👧‍👦 🎉")],
    ["literal-escape", text("before\\u0000after")],
  ])("hold a tool's own result as it was: %s", async (kind, result) => {
    expect(parsed(await run(at("call", "hostile", "--arg", `kind=${kind}`, "--json"))).document.result).toEqual(result);
  });

  test("hold even a key called __proto__", async () => {
    const { stdout } = await run(at("call", "hostile", "--arg", "kind=proto-key", "--json"));
    expect(stdout).toContain('"structuredContent":{"__proto__":{"polluted":true},"plain":1}');
  });

  test("of watch come one a change, and the last one is final", async () => {
    const id = await detached("ask_twice");
    const watching = start(at("watch", shortened(id), "--json"));
    await new Promise((resolve) => watching.child.stdout?.once("data", resolve));
    await run(at("answer", id, "--set", "value=1"));
    const asked = async () => (await run(at("get", id, "--json"))).stdout;
    await expect.poll(asked, { timeout: 10_000 }).toContain('"second"');
    await run(at("answer", id, "--set", "value=2"));
    const ran = await watching.done;
    const all = documents(ran);
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(all.every(({ taskId }) => taskId === id)).toBe(true);
    expect(all.map((one) => JSON.stringify(one)).filter((one, i, lines) => one === lines[i - 1])).toEqual([]);
    expect(all.at(0)).toMatchObject({ status: "input_required", inputRequests: { first: {} } });
    expect(all.at(-1)).toEqual({ taskId: id, status: "completed", result: text("first=1 second=2") });
  });

  test("of several tasks share the stream, and the exit code is the first that isn't 0", async () => {
    const ids = [await detached("slow_compute"), await detached("failing_job")];
    const ran = await run(at("watch", ...ids, "--json"));
    expect(ran.code).toBe(5);
    const last = ids.map((id) => documents(ran).findLast(({ taskId }) => taskId === id).status);
    expect(last).toEqual(["completed", "completed"]);
  });
});

describe("lines", () => {
  test.each([{ CI: "1" }, { TERM: "dumb" }, { NO_COLOR: "1" }, {}])("off a terminal are plain: %j", async (env) => {
    const { stderr } = await run(at("call", "slow_compute", "--arg", "seconds=0.3"), { env });
    expect(stderr).toMatch(/^\S+ {2}slow_compute {2}working\n\S+ {2}slow_compute {2}completed\n$/);
  });

  test("come for each turn and message once", async () => {
    let polls = 0;
    const messages = ["one", "one", "two 1/2", "two 1/2"];
    await using fake = await fakeServer(({ method }, reply) => {
      if (method === "tools/call") reply.result(created());
      else if (polls < messages.length) reply.result(working({ statusMessage: messages[polls++] }));
      else reply.result(completed());
    });
    const { stdout, stderr } = await run(["call", "x", "--url", fake.url]);
    expect(stdout).toBe("done\n");
    expect(stderr.split("\n")).toEqual([
      "task-1  x  working",
      "task-1  x  working  one",
      "task-1  x  working  two 1/2  [######------] 50%",
      "task-1  x  completed",
      "",
    ]);
  });
});

describe("a result", () => {
  test("that is a picture is named on stdout, and written as its bytes", async () => {
    const data = Buffer.from([0, 1, 2, 255]).toString("base64");
    const result = { resultType: "complete", content: [{ type: "image", mimeType: "image/png", data }] };
    await using fake = await fakeServer((_, reply) => reply.result(working({ status: "completed", result })));
    expect((await run(["result", "task-1", "--url", fake.url])).stdout).toBe("[image, image/png, 4 bytes]\n");
    const file = path.join(temporaryFolder(), "picture.png");
    const { code, stdout } = await run(["result", "task-1", "-o", file, "--url", fake.url]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    expect([...readFileSync(file)]).toEqual([0, 1, 2, 255]);
  });

  test("that can't be written is said, with the exit code 2", async () => {
    const id = await detached("slow_compute");
    expect(await run(at("result", id, "-o", "/dev/null/x"))).toMatchObject({ code: 2 });
  });

  test("that is structured alone is printed as JSON", async () => {
    const result = { resultType: "complete", content: [], structuredContent: { a: 1 } };
    await using fake = await fakeServer((_, reply) => reply.result(working({ status: "completed", result })));
    expect((await run(["result", "task-1", "--url", fake.url])).stdout).toBe('{\n  "a": 1\n}\n');
  });
});

describe("answers", () => {
  test("are checked before they are sent, and take titles, numbers, defaults and lists", async () => {
    const requestedSchema = {
      type: "object",
      properties: {
        size: {
          type: "string",
          oneOf: [
            { const: "s", title: "Small" },
            { const: "l", title: "Large" },
          ],
        },
        count: { type: "integer", minimum: 1, maximum: 9, default: 2 },
        tags: { type: "array", items: { type: "string", enum: ["a", "b", "c"] } },
        note: { type: "string", maxLength: 3 },
        gift: { type: "boolean" },
      },
      required: ["size", "count"],
    };
    const request = { method: "elicitation/create", params: { mode: "form", message: "What?", requestedSchema } };
    let answered: unknown;
    await using fake = await fakeServer(({ method, params }, reply) => {
      if (method === "tasks/update") {
        answered = params.inputResponses;
        reply.result({ resultType: "complete" });
      } else reply.result(answered === undefined ? asking({ what: request }) : working());
    });
    const answer = (...words: string[]) => run(["answer", "task-1", ...words, "--url", fake.url]);
    const refused: [string, string][] = [
      ["size=huge", "size: s | l."],
      ["count=10", "count: a whole number from 1 to 9."],
      ["count=2.5", "count: a whole number from 1 to 9."],
      ["count=abc", "count: a whole number from 1 to 9."],
      ["count=", "count: a whole number from 1 to 9."],
      ["gift=perhaps", "gift: yes or no."],
      ["note=long", "note: Too big: expected string to have <=3 characters."],
    ];
    for (const [pair, message] of refused) {
      const { code, stderr } = await answer("--set", "size=s", pair);
      expect({ code, said: stderr.split("\n")[0] }).toEqual({ code: 2, said: `mcp-tasks: ${message}` });
    }
    expect((await answer("--set", "count=3")).stderr).toContain("mcp-tasks: size is needed: s | l.\n");
    expect((await answer("--set", "colour=red")).stderr).toContain('no field "colour"');
    expect((await answer("--key", "who", "--set", "size=s")).stderr).toContain("It asks: what.");
    expect(answered).toBeUndefined();
    expect(await answer("--set", "size=Large", "tags=a,3")).toMatchObject({ code: 0, stdout: "task-1  working\n" });
    expect(answered).toEqual({ what: { action: "accept", content: { size: "l", count: 2, tags: ["a", "c"] } } });
  });

  test("say yes or no to a question without fields", async () => {
    const answers: unknown[] = [];
    const bare = {
      method: "elicitation/create",
      params: { mode: "form", message: "Go?", requestedSchema: { type: "object", properties: {} } },
    };
    await using fake = await fakeServer(({ method, params }, reply) => {
      if (method === "tasks/update") answers.push(params.inputResponses.go);
      reply.result(
        method === "tasks/update"
          ? { resultType: "complete" }
          : answers.length === 0
            ? asking({ go: bare })
            : working(),
      );
    });
    expect((await run(["answer", "task-1", "--accept", "--url", fake.url])).code).toBe(0);
    answers.length = 0;
    expect((await run(["answer", "task-1", "--decline", "--url", fake.url, "--state", temporaryFolder()])).code).toBe(
      0,
    );
    expect(answers).toEqual([{ action: "decline" }]);
  });

  test("to a task that asks nothing are refused", async () => {
    await using fake = await fakeServer((_, reply) => reply.result(working()));
    expect(await run(["answer", "task-1", "--accept", "--url", fake.url])).toMatchObject({ code: 2 });
  });

  test("are needed where there is nobody to ask", async () => {
    await using fake = await fakeServer((_, reply) => reply.result(asking({ who: form("Who?") })));
    const { code, stderr } = await run(["answer", "task-1", "--url", fake.url]);
    expect(code).toBe(6);
    expect(stderr).toContain(`mcp-tasks answer task-1 --key who --set name=… --url ${fake.url}`);
  });
});

describe("a task", () => {
  const remembered = async () => parsed(await run(["ls", "--json"])).document.tasks;

  test.each([
    ["get", [], completed("done"), "done"],
    ["cancel", ["--wait"], cancelled(), "cancelled"],
    ["cancel", [], completed("too late"), "too late"],
    ["answer", ["--set", "name=Ada"], completed("hello Ada"), "hello Ada"],
    ["answer", ["--set", "name=Ada"], failed({ code: -32603, message: "broken" }), "error -32603: broken"],
  ])(
    "is forgotten once its outcome was shown by %s %j, and not remembered again",
    async (command, words, end, said) => {
      let task: object = command === "answer" ? asking({ who: form("Who?") }) : working();
      await using fake = await fakeServer(({ method }, reply) => {
        if (method === "tools/call") reply.result(created());
        else if (method === "tasks/get") reply.result(task);
        else {
          task = end;
          reply.result(ack);
        }
      });
      await run(["call", "shop", "--detach", "--url", fake.url]);
      await run(["get", "task-1", "--url", fake.url]);
      expect(await remembered()).toEqual([expect.objectContaining({ taskId: "task-1", tool: "shop" })]);
      if (command === "get") task = end;
      for (let times = 0; times < 2; times += 1) {
        expect((await run([command, "task-1", ...words, "--url", fake.url])).stdout).toContain(said);
        expect(await remembered()).toEqual([]);
      }
    },
  );
});

describe("an outcome that reached nobody", () => {
  const done = () =>
    fakeServer(({ method }, reply) => reply.result(method === "tools/call" ? created() : completed("all done")));
  const remembered = async () => parsed(await run(["ls", "--json"])).document.tasks;

  test("is still there for who names a file that can be written", async () => {
    await using fake = await done();
    await run(["call", "shop", "--detach", "--url", fake.url]);
    const { code, stderr } = await run(["result", "task-1", "-o", "/dev/null/file", "--url", fake.url]);
    expect(code).toBe(2);
    expect(stderr).toContain(`mcp-tasks result task-1 -o FILE --url ${fake.url}`);
    expect(await remembered()).toEqual([expect.objectContaining({ taskId: "task-1", tool: "shop" })]);
    expect((await run(["result", "task-1", "--url", fake.url])).stdout).toBe("all done\n");
    expect(await remembered()).toEqual([]);
  });

  test.skipIf(!existsSync("/dev/full")).each(["result", "get", "watch"])(
    "because standard output is full is still there after %s",
    async (command) => {
      await using fake = await done();
      await run(["call", "shop", "--detach", "--url", fake.url]);
      const ran = await run([command, "task-1", "--url", fake.url], { stdout: "/dev/full" });
      expect(ran).toMatchObject({ code: 1, stderr: expect.stringContaining("Standard output can't be written.") });
      expect(await remembered()).toEqual([expect.objectContaining({ taskId: "task-1", tool: "shop" })]);
    },
  );

  test("is none for want of a reader of standard error", async () => {
    const running = start(at("call", "slow_compute", "--arg", "seconds=0.3", "label=pi"));
    running.child.stderr?.destroy();
    expect(await running.done).toMatchObject({ code: 0, stdout: "Computed pi in 0.3 s\n" });
  });
});

test("a call that waits for its answer is calling, and unknown once its process has died", async () => {
  const called = Promise.withResolvers<void>();
  await using fake = await fakeServer(({ method }) => method === "tools/call" && called.resolve());
  const running = start(["call", "shop", "--url", fake.url]);
  await called.promise;
  const statuses = async () => {
    const { tasks } = parsed(await run(["ls", "--json"])).document;
    return tasks.map(({ taskId, tool, status }: any) => [taskId, tool, status]);
  };
  expect(await statuses()).toEqual([[null, "shop", "calling"]]);
  running.child.kill("SIGKILL");
  await running.done;
  expect(await statuses()).toEqual([[null, "shop", "unknown"]]);
});

describe("what was asked to end", () => {
  const remembered = async () => parsed(await run(["ls", "--json"])).document.tasks;

  /** A server whose task goes on when it is asked to end, */
  const stubborn = async () => {
    const state = { task: working() as object };
    const fake = await fakeServer(({ method }, reply) =>
      reply.result(method === "tools/call" ? created() : method === "tasks/get" ? state.task : ack),
    );
    return Object.assign(fake, { state });
  };

  test("by cancel is remembered as it was until its end was shown", async () => {
    await using fake = await stubborn();
    await run(["call", "shop", "--detach", "--url", fake.url]);
    const before = await remembered();
    expect((await run(["cancel", "task-1", "--url", fake.url])).stdout).toBe("task-1  working\n");
    expect(await remembered()).toEqual(before);
    fake.state.task = cancelled();
    expect((await run(["result", "task-1", "--url", fake.url])).code).toBe(9);
    expect(await remembered()).toEqual([]);
  });

  test("by a second Ctrl-C as well", async () => {
    await using fake = await stubborn();
    const running = start(["call", "shop", "--url", fake.url]);
    await running.said("working");
    const before = await remembered();
    running.child.kill("SIGINT");
    await running.said("Detached");
    running.child.kill("SIGINT");
    expect((await running.done).stderr).toContain("the server was asked to cancel the task");
    expect(fake.of("tasks/cancel")).toHaveLength(1);
    expect(before).toEqual([expect.objectContaining({ taskId: "task-1", tool: "shop" })]);
    expect(await remembered()).toEqual(before);
  });
});

describe("the state folder", () => {
  test("that is damaged costs only what is damaged, and ls says so", async () => {
    const state = temporaryFolder();
    await using fake = await fakeServer((_, reply) => reply.result(created()));
    await run(["call", "shop", "--detach", "--url", fake.url, "--state", state]);
    appendFileSync(path.join(state, "tasks/tasks.log"), "nonsense\n");
    const { code, stdout, stderr } = await run(["ls", "--state", state]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining("shop") });
    expect(stderr).toContain("records that can't be read");
    expect(parsed(await run(["ls", "--json", "--state", state])).document.tasks).toHaveLength(1);
  });

  test("is this user's alone, under XDG_STATE_HOME or where --state says", async () => {
    const home = temporaryFolder();
    await run(at("call", "slow_compute", "--arg", "seconds=30", "--detach"), { env: { XDG_STATE_HOME: home } });
    const given = path.join(temporaryFolder(), "given");
    await run(at("call", "slow_compute", "--arg", "seconds=30", "--detach", "--state", given));
    for (const folder of [path.join(home, "mcp-tasks"), given, path.join(given, "tasks")])
      expect(statSync(folder).mode & 0o777).toBe(0o700);
    expect(statSync(path.join(given, "tasks/tasks.log")).mode & 0o077).toBe(0);
  });

  test("is under the home folder where XDG_STATE_HOME is none, or no whole path", async () => {
    const home = temporaryFolder();
    await run(at("call", "slow_compute", "--detach"), { env: { HOME: home, XDG_STATE_HOME: "relative" } });
    expect(existsSync(path.join(home, ".local/state/mcp-tasks/tasks"))).toBe(true);
  });
});
