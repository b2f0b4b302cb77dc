import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { fakeServer } from "../client/fake-http.ts";
import { wire } from "../wire/client.ts";
import { parsed, root, run, shortened, start, temporaryFolder } from "./program.ts";

let fixture: Fixture;
let db = "";
let folder = "";
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "cli-operator-"));
  db = path.join(folder, "tasks.db");
  fixture = await startFixture(["--db", db, "--tokens", "alice=A,bob=B"]);
});
afterAll(async () => {
  await fixture[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const on = (...words: string[]) => run([...words, "--db", db]);

describe("on a server's own database", () => {
  test("an operator sees the tasks of every owner, and answers and cancels them", async () => {
    const [alice, bob] = [wire(fixture.url, { token: "A" }), wire(fixture.url, { token: "B" })];
    const asked = await alice.start("confirm_delete");
    const slow = await bob.start("slow_compute", { seconds: 60 });
    await alice.until(asked, "input_required");
    const { stdout } = await on("ls");
    expect(stdout).toMatch(/^ID +STATUS +TOOL +AGE +OWNER\n/);
    expect(stdout).toMatch(new RegExp(`${slow.slice(0, 8)}\\S* +working +slow_compute +\\S+ +bob`));
    const listed = parsed(await on("ls", "--status", "input_required", "--json")).document.tasks;
    expect(listed).toEqual([expect.objectContaining({ taskId: asked, tool: "confirm_delete", owner: "alice" })]);

    expect(parsed(await on("get", shortened(asked), "--json")).document).toMatchObject({
      taskId: asked,
      status: "input_required",
    });
    expect(await on("answer", asked, "--set", "confirm=perhaps")).toMatchObject({ code: 2 });
    expect(await on("answer", asked, "--set", "confirm=yes")).toMatchObject({ code: 0 });
    expect((await alice.until(asked)).result?.content?.[0]?.text).toBe("Deleted file.txt");
    expect(parsed(await on("cancel", slow, "--wait", "--json")).document).toEqual({
      taskId: slow,
      status: "cancelled",
    });
    expect(await on("get", slow)).toMatchObject({ code: 0, stdout: expect.stringContaining("cancelled") });
  });

  test("an unknown id, a file that isn't there and a server beside it are refused", async () => {
    const unknown = await on("get", "nobody");
    expect(unknown.code).toBe(10);
    expect(unknown.stderr).toContain('No task here has the id "nobody", or one that begins with it.');
    expect(await run(["ls", "--db", "none.db"], { cwd: folder })).toEqual({
      code: 4,
      stdout: "",
      stderr: "mcp-tasks: --db: there is no file none.db.\n  ls -l .\n",
    });
    expect(await on("get", "x", "--url", fixture.url)).toMatchObject({ code: 2 });
  });

  test("purge deletes what was kept for long enough", async () => {
    const file = path.join(temporaryFolder(), "kept.db");
    await using short = await startFixture(["--db", file, "--keep", "1"]);
    const server = wire(short.url);
    const id = await server.start("whoami");
    await expect.poll(async () => (await server.get(id)).body.error?.code).toBe(-32602);
    await short.stop();
    const ran = await run(["purge", "--db", file, "--json"]);
    expect(ran.code).toBe(0);
    expect(parsed(ran).document).toEqual({ purged: expect.any(Number), timedOut: 0, cancelled: 0 });
    expect(parsed(await run(["ls", "--db", file, "--json"])).document.tasks).toEqual([]);
  });

  test("doctor checks the file", async () => {
    expect(await on("doctor")).toMatchObject({ code: 0, stdout: expect.stringContaining("file      sound") });
    const damaged = path.join(temporaryFolder(), "damaged.db");
    writeFileSync(damaged, "this is no database at all, however long it is".repeat(100), { mode: 0o600 });
    const ran = await run(["doctor", "--db", damaged, "--json"]);
    expect(ran.code).toBe(1);
    expect(parsed(ran).document.problems).toHaveLength(1);
    const open = path.join(temporaryFolder(), "open.db");
    copyFileSync(db, open);
    chmodSync(open, 0o644);
    expect(await run(["doctor", "--db", open])).toMatchObject({
      code: 1,
      stdout: expect.stringContaining("chmod 600"),
    });
  });
});

describe("worker", () => {
  const tools = () => {
    const file = path.join(temporaryFolder(), "tools.ts");
    writeFileSync(
      file,
      `import { journalTools } from ${JSON.stringify(path.join(root, "test/fixture/tools.ts"))};
       import { conformanceTools } from ${JSON.stringify(path.join(root, "test/fixture/conformance-tools.ts"))};
       export const tools = [...journalTools({}), ...conformanceTools({})];`,
    );
    return file;
  };

  test("runs a module's tools until a signal ends it, and says little meanwhile", async () => {
    const file = path.join(temporaryFolder(), "tasks.db");
    await using front = await startFixture(["--db", file, "--role", "front"]);
    const working = start(["worker", "--tools", tools(), "--concurrency", "2", "--db", file]);
    await working.said("Working on ");
    expect((await wire(front.url).until(await wire(front.url).start("slow_compute", { label: "x" }))).status).toBe(
      "completed",
    );
    working.child.kill("SIGTERM");
    const { code, stdout, stderr } = await working.done;
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    expect(stderr.trim().split("\n").length).toBeLessThan(5);
  });

  test.each([
    ["a module that isn't there", "/nowhere.ts"],
    ["a module without tools", path.join(root, "src/clock.ts")],
  ])("refuses %s", async (_, module) => {
    const file = path.join(temporaryFolder(), "tasks.db");
    expect(await run(["worker", "--tools", module, "--db", file])).toMatchObject({ code: 2, stdout: "" });
  });
});

describe("doctor of a server", () => {
  test("says that a call may become a task, and why", async () => {
    await using open = await startFixture();
    const { code, stdout } = await run(["doctor", "--url", open.url]);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^server {4}mcp-tasks-fixture 1\.0\.0, \d+ tools\nprotocol {2}2026-07-28\ntasks {5}of 2026-07-28\n- /,
    );
    expect(stdout).toContain("a call may become a task");
    expect(parsed(await run(["doctor", "--json", "--url", open.url])).document).toMatchObject({ tasks: "2026-07-28" });
  });

  test("says that none does where the server doesn't offer it", async () => {
    await using plain = await fakeServer(
      (_, reply) => reply.result({ resultType: "complete", tools: [], ttlMs: 0, cacheScope: "private" }),
      {},
    );
    const { code, stdout } = await run(["doctor", "--url", plain.url]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining("every call is answered at once") });
  });
});
