import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { exits } from "../../src/cli/exit.ts";
import { root, run } from "./program.ts";

const commands = "call watch get result answer cancel ls forget tools doctor purge worker completion".split(" ");

test.each(["", ...commands])("%s --help shows examples, on stdout", async (command) => {
  const { code, stdout, stderr } = await run([...(command === "" ? [] : [command]), "--help"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(new RegExp(`\nExamples:\n {2}.*mcp-tasks ${command}`));
});

test("--version is the package's", async () => {
  const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  expect(await run(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
});

describe("completion", () => {
  const script = async (shell: string) => (await run(["completion", shell])).stdout;

  test("in bash completes commands and their options", async () => {
    const code = `${await script("bash")}
      complete_at() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mcp_tasks; echo "\${COMPREPLY[*]}"; }
      complete_at mcp-tasks ca; complete_at mcp-tasks call --arg; complete_at mcp-tasks purge --d`;
    const { stdout, stderr } = spawnSync("bash", ["--norc", "-c", code], { encoding: "utf8" });
    expect({ stdout, stderr }).toEqual({ stdout: "call cancel\n--arg --args-json\n--db\n", stderr: "" });
  });

  test.each(["zsh", "fish"])("in %s knows each command", async (shell) => {
    const text = await script(shell);
    for (const command of commands) expect(text).toContain(command);
    const { error, status } = spawnSync(shell, ["-n"], { input: text });
    if (error === undefined) expect(status).toBe(0);
  });

  test("of another shell is refused", async () => {
    expect(await run(["completion", "csh"])).toMatchObject({ code: 2 });
  });
});

test("the guide has every command and every exit code", () => {
  const guide = readFileSync(path.join(root, "docs/guide/cli.md"), "utf8");
  for (const command of commands) expect(guide).toContain(`mcp-tasks ${command}`);
  for (const code of Object.values(exits)) expect(guide).toMatch(new RegExp(`^\\| ${code} \\|`, "m"));
});
