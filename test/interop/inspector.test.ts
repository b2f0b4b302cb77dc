import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { channels, httpServer, root, stdioServer, type Channel } from "./channels.ts";

/** What one run of the Inspector came to. */
interface Ran {
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

const launcher = path.join(root, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
const home = mkdtempSync(path.join(tmpdir(), "mcp-tasks-inspector-"));
afterAll(() => rmSync(home, { recursive: true, force: true }));

const url = httpServer();

/** Runs `inspector --cli` on the fixture, in a home of its own. */
function inspect(channel: Channel, ...options: string[]): Promise<Ran> {
  const target =
    channel === "http"
      ? [url(), "--transport", "http"]
      : [stdioServer.command, ...stdioServer.args, "--transport", "stdio"];
  const args = [launcher, "--cli", ...target, ...options];
  const settings = { cwd: root, env: { PATH: process.env.PATH, HOME: home }, timeout: 30_000 };
  return new Promise((resolve) => {
    execFile(process.execPath, args, settings, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : (error.code ?? "killed"), stdout, stderr });
    });
  });
}

function call(channel: Channel, era: string, tool: string, args: object): Promise<Ran> {
  const how = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", JSON.stringify(args)];
  return inspect(channel, "--protocol-era", era, ...how);
}

describe.each(channels)("MCP Inspector's cli over %s", { concurrent: true }, (channel) => {
  test("lists the tools", async () => {
    const ran = await inspect(channel, "--protocol-era", "modern", "--method", "tools/list");
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    const { tools } = JSON.parse(ran.stdout) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(["greet", "slow_compute", "failing_job"]));
  });

  test("calls a plain tool", async () => {
    const ran = await call(channel, "modern", "greet", { name: "Ada" });
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(ran.stdout)).toMatchObject({ content: [{ type: "text", text: "Hello, Ada!" }] });
  });

  test.each([
    ["modern", { resultType: "complete" }],
    ["legacy", {}],
  ])("gets a long-running tool's result in the %s era", async (era, more) => {
    const ran = await call(channel, era, "slow_compute", { seconds: 1, label: "sum" });
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(ran.stdout)).toEqual({ content: [{ type: "text", text: "Computed sum in 1 s" }], ...more });
  });

  test("gets the result of a tool that runs as a task only: it follows the task to its end", async () => {
    const ran = await call(channel, "modern", "failing_job", {});
    // The Inspector's own code for a tool's error.
    expect(ran.code).toBe(5);
    expect(JSON.parse(ran.stdout)).toEqual({
      content: [{ type: "text", text: "The job failed, as it always does" }],
      isError: true,
      resultType: "complete",
    });
  });

  test("follows a task of the legacy era, too, and shows why it failed", async () => {
    const ran = await call(channel, "legacy", "failing_job", {});
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(JSON.parse(ran.stderr)).toMatchObject({ error: { message: "The job failed, as it always does" } });
  });

  test("shows the error of a task that failed", async () => {
    const ran = await call(channel, "modern", "protocol_error_job", {});
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(JSON.parse(ran.stderr)).toMatchObject({ error: { message: "The job broke, as it always does" } });
  });
});
