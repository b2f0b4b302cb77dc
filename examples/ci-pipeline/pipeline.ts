import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { copyFile, cp, mkdir, readdir, readFile, rm, symlink } from "node:fs/promises";
import path from "node:path";
import { taskTool } from "mcp-tasks";
import { z } from "zod";
import { run } from "./run.ts";

export interface PipelineOptions {
  /** The project to release. */
  readonly repository: string;
  /** Where runs have their working copies. */
  readonly work: string;
  /** Where tarballs are published to. */
  readonly publishTo: string;
  /** Told of each stage that really runs. */
  readonly started: (stage: string) => void;
}

const stages = [
  { name: "types", args: ["run", "-s", "types"] },
  { name: "lint", args: ["run", "-s", "lint"] },
  { name: "test", args: ["test", "--", "test/protocol"] },
  { name: "pack", args: ["pack", "--pack-destination", "packed"] },
];

/** Not part of a copy. */
const left = new Set(["node_modules", "dist", ".demo"]);

const inputSchema = z.object({
  ref: z
    .string()
    .regex(/^\w[\w./-]*$/)
    .default("HEAD")
    .describe("The commit, branch or tag to release"),
});
const outputSchema = z.object({
  file: z.string().describe("Where the tarball is"),
  size: z.int().describe("In bytes"),
  sha256: z.string(),
  durations: z.record(z.string(), z.number()).describe("Milliseconds of each stage"),
});

export type Released = z.infer<typeof outputSchema>;

/** Checks, tests and packs a project, asks, and publishes. Each stage is a step: what is done stays done. */
export const pipelineTool = ({ repository, work, publishTo, started }: PipelineOptions) =>
  taskTool({
    name: "run_pipeline",
    title: "Release pipeline",
    description: "Checks, tests and packs the project, asks for approval, and publishes the tarball",
    inputSchema,
    outputSchema,
    task: { timeout: "7d" },
    async run({ ref }, task) {
      const folder = path.join(work, task.id);
      const packed = path.join(folder, "packed");
      const total = stages.length + 2;
      const durations: Record<string, number> = {};

      /** Runs once per task, whatever happens to this process in between; later attempts get the recorded duration. */
      async function stage(name: string, body: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
        await task.report(name, { progress: Object.keys(durations).length, total });
        durations[name] = await task.step(name, async ({ signal }) => {
          const begin = Date.now();
          started(name);
          await body(signal);
          return Date.now() - begin;
        });
      }

      await stage("checkout", (signal) => checkOut(repository, ref, folder, signal));
      for (const { name, args } of stages) await stage(name, (signal) => run("npm", args, { cwd: folder, signal }));

      const { name, size, sha256 } = await task.step("inspect", () => inspect(packed));
      await task.report("approval", { progress: total - 1, total });
      await task.approve("publish", `Publish ${name} (${size} bytes, sha256 ${sha256.slice(0, 12)}…)?`);

      const file = path.join(publishTo, name);
      await stage("publish", () => copyFile(path.join(packed, name), file));
      await rm(folder, { recursive: true, force: true });
      const released: Released = { file, size, sha256, durations };
      return { content: [{ type: "text", text: `Published ${file}` }], structuredContent: released };
    },
  });

/** A fresh copy of the project. It may follow an interrupted try, so it begins by removing what that left. */
async function checkOut(repository: string, ref: string, folder: string, signal: AbortSignal): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(path.join(folder, "packed"), { recursive: true });
  if (existsSync(path.join(repository, ".git"))) {
    const archive = path.join(folder, "packed", "source.tar");
    await run("git", ["archive", "--output", archive, ref], { cwd: repository, signal });
    await run("tar", ["-xf", archive], { cwd: folder, signal });
    await rm(archive);
  } else {
    for (const name of await readdir(repository)) {
      if (left.has(name)) continue;
      await cp(path.join(repository, name), path.join(folder, name), { recursive: true });
    }
  }
  await symlink(path.join(repository, "node_modules"), path.join(folder, "node_modules"));
}

async function inspect(packed: string): Promise<{ name: string; size: number; sha256: string }> {
  const name = (await readdir(packed)).find((file) => file.endsWith(".tgz"));
  if (name === undefined) throw new Error("npm pack made no tarball");
  const bytes = await readFile(path.join(packed, name));
  return { name, size: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}
