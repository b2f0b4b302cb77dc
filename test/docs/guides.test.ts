import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = path.join(import.meta.dirname, "../..");
const guides = path.join(root, "docs/guide");

/** A program of a guide, and what the guide says that it prints. */
const program = /```ts run\n(?<code>[\s\S]*?)```\n+```text\n(?<output>[\s\S]*?)```/g;

/** Inside the project, so that the package's own name means the sources. */
let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(path.join(root, "test/docs/.run-"));
});
afterAll(() => rm(folder, { recursive: true }));

for (const name of await readdir(guides)) {
  const text = await readFile(path.join(guides, name), "utf8");
  const programs = [...text.matchAll(program)].map(({ groups, index }) => ({
    line: text.slice(0, index).split("\n").length,
    code: groups?.code ?? "",
    output: groups?.output ?? "",
  }));
  const marked = text.split("```ts run").length - 1;

  describe(`docs/guide/${name}`, () => {
    test("each program is followed by what it prints", () => {
      expect(programs.length).toBe(marked);
    });
    test.each(programs)("the program in line $line prints what the guide says", async ({ line, code, output }) => {
      const file = path.join(folder, `${name}-${line}.ts`);
      await writeFile(file, code);
      const { stdout } = await promisify(execFile)(process.execPath, ["--conditions=mcp-tasks-dev", file], {
        cwd: root,
      });
      expect(stdout).toBe(output);
    });
  });
}
