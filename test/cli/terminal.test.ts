import path from "node:path";
import { describe, expect, test } from "vitest";
import { fakeServer, type FakeServer } from "../client/fake-http.ts";
import { ack, asking, cancelled, completed, created, form, working } from "../client/wire.ts";
import { fixtureProgram, run, temporaryFolder } from "./program.ts";
import { hasTmux, kept, onTerminal } from "./terminal.ts";

if (!hasTmux) console.warn("tmux is not installed: the tests on a terminal are skipped");

/** A server whose one task is what the test says. */
interface Scripted extends FakeServer {
  task: () => object;
  readonly answers: Record<string, unknown>;
}

async function scripted(task: () => object): Promise<Scripted> {
  const answers: Record<string, unknown> = {};
  const server = await fakeServer(({ method, params }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result({ ...script.task(), taskId: params.taskId });
    else if (method === "tasks/update") {
      Object.assign(answers, params.inputResponses);
      reply.result(ack);
    } else if (method === "tasks/cancel") {
      script.task = cancelled;
      reply.result(ack);
    } else reply.error(-32601, "unknown");
  });
  const script: Scripted = Object.assign(server, { task, answers });
  return script;
}

const screenFile = (name: string) => `screens/${name}.txt`;

const order = {
  method: "elicitation/create",
  params: {
    mode: "form",
    message: "What do you want?",
    requestedSchema: {
      type: "object",
      properties: {
        size: {
          type: "string",
          title: "Size",
          oneOf: [
            { const: "s", title: "Small" },
            { const: "l", title: "Large" },
          ],
        },
        count: { type: "integer", title: "How many", minimum: 1, maximum: 9, default: 2 },
        gift: { type: "boolean", description: "It can be wrapped" },
        mail: { type: "string", format: "email" },
      },
      required: ["size", "count", "mail"],
    },
  },
};

describe.skipIf(!hasTmux)("on a terminal", () => {
  test("a task has one live line with a bar, and its result stays", async () => {
    await using server = await scripted(() => working({ statusMessage: "Compiling 3/4" }));
    const screen = onTerminal(["call", "build", "--url", server.url]);
    await expect(kept(await screen.shows("75%"))).toMatchFileSnapshot(screenFile("working"));
    server.task = () => completed("built");
    await expect(kept(await screen.shows("exit 0"))).toMatchFileSnapshot(screenFile("completed"));
  });

  test("a line has colours, unless NO_COLOR is set", async () => {
    await using server = await scripted(() => completed());
    const styled = onTerminal(["watch", "task-1", "--url", server.url]);
    await styled.shows("exit 0");
    expect(styled.now(true)).toContain("\u001B[32mcompleted");
    const plain = onTerminal(["watch", "task-1", "--url", server.url], { NO_COLOR: "1" });
    await plain.shows("exit 0");
    expect(plain.now(true)).not.toContain("\u001B[");
  });

  test("several tasks have a line each", async () => {
    await using server = await scripted(() => working({ statusMessage: "at it" }));
    const screen = onTerminal(["watch", "task-1", "task-2", "--url", server.url]);
    await expect(kept(await screen.shows(/at it[^]*at it/))).toMatchFileSnapshot(screenFile("two-tasks"));
  });

  test("a question is asked field by field, checked before it is sent", async () => {
    await using server = await scripted(() => asking({ order }));
    const screen = onTerminal(["call", "shop", "--url", server.url]);
    await screen.shows("[answer], decline or later?");
    screen.type("Enter");
    await screen.shows("Size");
    screen.type("2", "Enter");
    await screen.shows("How many");
    screen.type("12", "Enter");
    await screen.shows("Too big");
    screen.type("Enter");
    await screen.shows("gift");
    screen.type("Enter");
    await screen.shows("mail");
    screen.type("nobody", "Enter");
    await screen.shows(/Invalid/);
    screen.type("ada@example.org", "Enter");
    await expect
      .poll(() => server.answers)
      .toEqual({
        order: { action: "accept", content: { size: "l", count: 2, mail: "ada@example.org" } },
      });
    server.task = () => completed("ordered");
    await expect(kept(await screen.shows("exit 0"))).toMatchFileSnapshot(screenFile("form"));
  });

  test("later leaves the question open, and says how to answer it", async () => {
    await using server = await scripted(() => asking({ who: form("Who?") }));
    const screen = onTerminal(["call", "shop", "--url", server.url]);
    await screen.shows("later?");
    screen.type("later", "Enter");
    await expect(kept(await screen.shows("exit 6"))).toMatchFileSnapshot(screenFile("later"));
    expect(server.of("tasks/update")).toEqual([]);
  });

  test.each([
    ["call", {}, ["C-d"]],
    ["call", {}, ["Enter", "C-d"]],
    ["answer", {}, ["C-d"]],
    ["answer", { TERM: "dumb" }, ["Enter", "C-d"]],
    // A line that was not sent off is no answer.
    ["answer", { TERM: "dumb" }, ["d", "C-d", "C-d"]],
  ])("where the input ends nobody has answered: %s %j %j", async (command, env, keys) => {
    const other = form("And who else?");
    await using server = await scripted(() => asking({ who: form("Who?"), other }));
    const screen = onTerminal([command, command === "call" ? "shop" : "task-1", "--url", server.url], env);
    for (const [index, key] of keys.entries()) {
      await screen.shows(index > 0 && keys[0] === "Enter" ? "name:" : "later?");
      screen.type(key);
    }
    const end = await screen.shows("exit 6");
    expect(end).toContain("  The input has ended: nobody answers.\n");
    expect(end).toContain(`  mcp-tasks answer task-1 --url ${server.url}\n`);
    expect(server.of("tasks/update")).toEqual([]);
  });

  test("a wait that ends at a question before the call starts says that nothing runs", async () => {
    await using server = await fakeServer((_, reply) =>
      reply.result({ resultType: "input_required", inputRequests: { who: form("Who?") } }),
    );
    const screen = onTerminal(["call", "shop", "--wait", "1s", "--url", server.url]);
    const end = await screen.shows("exit 7");
    expect(end).toContain("Who?");
    expect(end).toContain("Nothing runs.");
    expect(end).toContain(`  mcp-tasks call shop … --url ${server.url}`);
  });

  test("declining is an answer", async () => {
    await using server = await scripted(() => asking({ who: form("Who?") }));
    const screen = onTerminal(["answer", "task-1", "--url", server.url]);
    await screen.shows("later?");
    screen.type("d", "Enter");
    await expect.poll(() => server.answers).toEqual({ who: { action: "decline" } });
    server.task = () => working();
    await screen.shows("exit 0");
  });

  test("a question that was answered elsewhere is taken back", async () => {
    await using server = await scripted(() => asking({ who: form("Who?") }));
    const screen = onTerminal(["call", "shop", "--url", server.url]);
    await screen.shows("later?");
    server.task = () => completed("done without you");
    await expect(kept(await screen.shows("exit 0"))).toMatchFileSnapshot(screenFile("taken-back"));
  });

  test.each(["while it works", "at a question"])("Ctrl-C %s detaches, and tells how to come back", async (when) => {
    await using server = await scripted(() => (when === "at a question" ? asking({ who: form("Who?") }) : working()));
    const screen = onTerminal(["call", "build", "--url", server.url]);
    await screen.shows(when === "at a question" ? "later?" : /working {2}\d/);
    screen.type("C-c");
    await screen.shows("Ctrl-C again");
    const end = kept(await screen.shows("exit 130"));
    await expect(end).toMatchFileSnapshot(screenFile(`detached-${when.replaceAll(" ", "-")}`));
    expect(server.of("tasks/cancel")).toEqual([]);
  });

  test("Ctrl-C twice asks the server to cancel", async () => {
    await using server = await scripted(() => working());
    const screen = onTerminal(["call", "build", "--url", server.url]);
    await screen.shows(/working {2}\d/);
    screen.type("C-c");
    await screen.shows("Ctrl-C again");
    screen.type("C-c");
    await expect(kept(await screen.shows("exit 130"))).toMatchFileSnapshot(screenFile("cancelled"));
    expect(server.of("tasks/cancel")).toHaveLength(1);
  });

  test("Ctrl-C is not for the program that --stdio started: it can still be asked to cancel", async () => {
    const db = path.join(temporaryFolder(), "tasks.db");
    const server = ["--stdio", process.execPath, ...fixtureProgram, "--stdio", "--db", db];
    const screen = onTerminal(["call", "slow_compute", "--arg", "seconds=60", ...server]);
    await screen.shows(/working {2}\d/);
    screen.type("C-c");
    await screen.shows("Ctrl-C again");
    screen.type("C-c");
    expect(await screen.shows("exit 130")).toContain("the server was asked to cancel the task");
    expect((await run(["ls", "--db", db])).stdout).toMatch(/cancelled +slow_compute/);
  });

  test("with CI there are lines, and nobody is asked", async () => {
    await using server = await scripted(() => asking({ who: form("Who?") }));
    const screen = onTerminal(["call", "shop", "--url", server.url], { CI: "true" });
    await expect(kept(await screen.shows("exit 6"))).toMatchFileSnapshot(screenFile("ci"));
  });

  test("with TERM=dumb there are lines, and a plain prompt", async () => {
    await using server = await scripted(() => asking({ who: form("Who?") }));
    const screen = onTerminal(["call", "shop", "--url", server.url], { TERM: "dumb" });
    await screen.shows("later?");
    screen.type("Enter");
    await screen.shows("name:");
    screen.type("Ada", "Enter");
    await expect.poll(() => server.answers).toEqual({ who: { action: "accept", content: { name: "Ada" } } });
    server.task = () => completed("hello Ada");
    await expect(kept(await screen.shows("exit 0"))).toMatchFileSnapshot(screenFile("dumb"));
  });

  test("a server's text steers nothing", async () => {
    const evil = "\u001B[2J\u001B[31mred\u0007 \u009B5A\rback";
    await using server = await scripted(() => completed(evil, { statusMessage: evil }));
    const screen = onTerminal(["result", "task-1", "--url", server.url]);
    await expect(kept(await screen.shows("exit 0"))).toMatchFileSnapshot(screenFile("evil"));
  });
});
