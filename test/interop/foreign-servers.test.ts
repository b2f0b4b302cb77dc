import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { Client, StreamableHTTPClientTransport, type Transport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { type InputContext, type InputHandlers, TaskClient } from "mcp-tasks/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort } from "../../examples/external-job/program.ts";
import { run as cli } from "../cli/program.ts";
import { hasTmux, onTerminal } from "../cli/terminal.ts";
import { root } from "./channels.ts";

const packages = path.join(root, "node_modules/@modelcontextprotocol");
const interactive = path.join(packages, "sdk/dist/esm/examples/server/simpleTaskInteractive.js");
const everything = path.join(packages, "server-everything/dist/index.js");

/** A client whose handlers say yes, and what they were asked about. */
async function connect(transport: Transport, content: Record<string, string | boolean> = { confirm: true }) {
  const asked: [string, string | undefined][] = [];
  const heard = (kind: string, { taskId }: InputContext) => void asked.push([kind, taskId]);
  const input: InputHandlers = {
    elicit(_, context) {
      heard("elicit", context);
      return { action: "accept", content };
    },
    sample(_, context) {
      heard("sample", context);
      return { role: "assistant", model: "none", content: { type: "text", text: "leaves fall" } };
    },
  };
  const client = new Client({ name: "our-client", version: "1.0.0" });
  return { tasks: await new TaskClient(client, { input }).connect(transport), asked };
}

describe("the SDK's own example server with tasks of 2025-11-25", () => {
  let server: ChildProcess;
  let url: string;
  beforeAll(async () => {
    const port = await freePort();
    url = `http://127.0.0.1:${port}/mcp`;
    server = spawn(process.execPath, [interactive], {
      env: { ...process.env, PORT: port },
      stdio: ["ignore", "pipe", "inherit"],
    });
    await new Promise((resolve) => server.stdout!.once("data", resolve));
    server.stdout!.resume();
  });
  afterAll(() => void server.kill());

  test.each([
    ["confirm_delete", { filename: "a.txt" }, "elicit", "Deleted 'a.txt'"],
    ["write_haiku", { topic: "autumn" }, "sample", "Haiku:\nleaves fall"],
  ])("%s asks while its result is waited for", async (name, args, kind, text) => {
    const { tasks, asked } = await connect(new StreamableHTTPClientTransport(new URL(url)));
    const run = await tasks.start({ name, arguments: args });
    const statuses = (await Array.fromAsync(run)).map(({ status }) => status);
    expect(statuses.at(-1)).toBe("completed");
    expect(await run.result()).toEqual({ content: [{ type: "text", text }] });
    expect(asked).toEqual([[kind, run.taskId]]);
    await tasks.close();
  });

  describe("from the command line", () => {
    const at = (...words: string[]) => [...words, "--url", url];
    const asks = async () =>
      (await cli(at("call", "confirm_delete", "--arg", "filename=a.txt", "--detach"))).stdout.trim();

    test.each([
      [["--set", "confirm=true"], "Deleted 'a.txt'"],
      [["--set", "confirm=false"], "Deletion cancelled"],
      [["--decline"], "Deletion cancelled"],
    ])("a detached task's question is nobody's until it is answered by %j", async (words, said) => {
      const id = await asks();
      expect((await cli(at("get", id))).stdout).toContain(`${id}  input_required\n`);
      const nobody = await cli(at("result", id));
      expect(nobody).toMatchObject({ code: 6, stdout: "" });
      expect(nobody.stderr).toContain(`mcp-tasks answer ${id}`);
      expect(await cli(at("answer", id))).toMatchObject({ code: 6 });
      expect(await cli(at("answer", id, ...words))).toMatchObject({
        code: 0,
        stdout: `${id}  completed\n${said}\n`,
        stderr: "",
      });
    });

    test("an answer that doesn't fit the question is no answer", async () => {
      const id = await asks();
      const { code, stderr } = await cli(at("answer", id, "--set", "sure=true"));
      expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("It has: confirm.") });
      expect((await cli(at("get", id))).stdout).toContain("input_required");
    });

    test.skipIf(!hasTmux)("on a terminal it is asked", async () => {
      const screen = onTerminal(at("call", "confirm_delete", "--arg", "filename=b.txt"));
      await screen.shows("[answer], decline or cancel?");
      screen.type("Enter");
      await screen.shows("confirm (yes or no):");
      screen.type("yes", "Enter");
      expect(await screen.shows("exit 0")).toContain("Deleted 'b.txt'");

      const later = onTerminal(at("answer", await asks()));
      await later.shows("[answer], decline or cancel?");
      later.type("c", "Enter");
      expect(await later.shows("exit 0")).toContain("Deletion cancelled");
    });

    test.skipIf(!hasTmux).each(["call", "answer"])("where the input ends %s does not dismiss it", async (command) => {
      const screen = onTerminal(command === "call" ? at("call", "confirm_delete") : at("answer", await asks()));
      await screen.shows("[answer], decline or cancel?");
      screen.type("C-d");
      const end = await screen.shows("exit 6");
      expect(end).toContain("The input has ended: nobody answers.");
      const [, id = ""] = /mcp-tasks answer (\S+)/.exec(end) ?? [];
      expect((await cli(at("get", id))).stdout).toContain("input_required");
    });
  });
});

describe.skipIf(!existsSync(everything))("server-everything over stdio", () => {
  const open = () =>
    new StdioClientTransport({ command: process.execPath, args: [everything, "stdio"], stderr: "ignore" });

  test("a plain tool answers at once", async () => {
    const { tasks } = await connect(open());
    const run = await tasks.start({ name: "echo", arguments: { message: "hi" } });
    expect(run.taskId).toBeUndefined();
    expect(await run.result()).toMatchObject({ content: [{ type: "text", text: "Echo: hi" }] });
    await tasks.close();
  });

  test.skipIf(!hasTmux).each([[[]], [["--detach"]]])(
    "a question of a plain call is not dismissed where the input ends %j",
    async (words) => {
      const server = ["--stdio", process.execPath, everything, "stdio"];
      const screen = onTerminal(["call", "trigger-elicitation-request", ...words, ...server]);
      await screen.shows("[answer], decline or stop?");
      screen.type("C-d");
      const end = await screen.shows("exit 6");
      expect(end).toContain("The input has ended: nobody answers.");
      expect(end).toContain("stays in ls");
      expect(end).toContain("  mcp-tasks ls --stdio ");
    },
  );

  test("its one task asks what is meant, and comes to its report", async () => {
    const { tasks, asked } = await connect(open(), { interpretation: "snake" });
    const research = { name: "simulate-research-query", arguments: { topic: "python", ambiguous: true } };
    const run = await tasks.start(research);
    const statuses = (await Array.fromAsync(run)).map(({ status }) => status);
    expect(statuses).toContain("input_required");
    expect(JSON.stringify(await run.result())).toContain("python (snake)");
    expect(asked).toEqual([["elicit", run.taskId]]);
    await tasks.close();
  });
});
