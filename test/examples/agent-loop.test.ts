import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const example = fileURLToPath(new URL("../../examples/agent-loop/", import.meta.url));

/** A program of the example, with what it has printed. */
function run(
  file: string,
  args: readonly string[],
): ChildProcess & { lines: string[]; said(text: string): Promise<void> } {
  const child = spawn(process.execPath, ["--conditions=mcp-tasks-dev", path.join(example, file), ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines: string[] = [];
  const reader = createInterface(child.stdout).on("line", (line) => lines.push(line));
  const said = async (text: string) => {
    while (!lines.some((line) => line.includes(text))) await once(reader, "line");
  };
  return Object.assign(child, { lines, said });
}

test("three tasks run at once, and a host that is killed in between goes on where it was", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "agent-loop-"));
  const server = run("server.ts", ["--port", "0", "--data", folder]);
  try {
    await server.said("Listening on ");
    const url = server.lines.join("\n").split("Listening on ")[1] ?? "";
    const answers = path.join(folder, "answers.json");
    await writeFile(answers, JSON.stringify({ seat: "aisle", breakfast: "full", seats: 5 }));
    const common = ["--url", url, "--state", path.join(folder, "host")];

    // Nobody answers: the first question stands, the others wait for their turn, and then the host is killed.
    const first = run("host.ts", common);
    await first.said("Question: ");
    await first.said("rent_car: Found offers in Lisbon");
    first.kill("SIGKILL");
    await once(first, "close");
    expect(first.lines.filter((line) => line.startsWith("Question"))).toHaveLength(1);

    // Killed again, after what was first to be booked.
    const second = run("host.ts", [...common, "--answers", answers]);
    await second.said("Done with ");
    second.kill("SIGKILL");
    await once(second, "close");
    expect(second.lines.filter((line) => line.startsWith("Going on with")).toSorted()).toEqual([
      "Going on with book_flight",
      "Going on with book_hotel",
      "Going on with rent_car",
    ]);

    const third = run("host.ts", [...common, "--answers", answers]);
    await once(third, "close");
    expect(third.lines.at(-1)).toBe("All done: 0 steps left");
    const plan = JSON.parse(await readFile(path.join(folder, "host/plan.json"), "utf8")) as Record<string, string>;
    expect(plan.book_flight).toMatch(/^book_flight in Lisbon: {"seat":"aisle"}, number \S{4}$/);
    expect(plan.book_hotel).toMatch(/^book_hotel in Lisbon: {"breakfast":"full"}, number \S{4}$/);
    expect(plan.rent_car).toMatch(/^rent_car in Lisbon: {"seats":5}, number \S{4}$/);
    const bookings = (await readFile(path.join(folder, "bookings"), "utf8")).trim().split("\n");
    expect(bookings.map((line) => line.split(" ")[0] ?? "").toSorted()).toEqual([
      "book_flight",
      "book_hotel",
      "rent_car",
    ]);

    const fourth = run("host.ts", [...common, "--answers", answers]);
    await once(fourth, "close");
    expect(fourth.lines).toEqual(["All done: 0 steps left"]);
  } finally {
    server.kill();
    await once(server, "close");
    await rm(folder, { recursive: true, maxRetries: 3 });
  }
}, 60_000);

test("on a terminal it asks for each field until it fits, one question at a time", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "agent-loop-"));
  const server = run("server.ts", ["--port", "0", "--data", folder]);
  let host: ReturnType<typeof run> | undefined;
  try {
    await server.said("Listening on ");
    const url = server.lines.join("\n").split("Listening on ")[1] ?? "";
    host = run("host.ts", ["--url", url, "--state", path.join(folder, "host")]);
    // One line for each prompt; what doesn't fit is asked again.
    const replies: Record<string, string[]> = { seat: ["floor", "aisle"], breakfast: ["none"], seats: ["many", "4"] };
    let shown = "";
    let answered = 0;
    host.stdout!.on("data", (chunk) => {
      // A prompt may come in pieces, or have other lines behind it.
      shown += String(chunk);
      const prompts = [...shown.matchAll(/(\w+)[^:\n]*, or nothing for later: /g)];
      for (const [, field = ""] of prompts.slice(answered)) host?.stdin!.write(`${replies[field]?.shift() ?? ""}\n`);
      answered = prompts.length;
    });
    await once(host, "close");
    expect(host.lines.at(-1)).toBe("All done: 0 steps left");
    const plan = await readFile(path.join(folder, "host/plan.json"), "utf8");
    for (const part of ["aisle", "none", 'seats\\":4']) expect(plan).toContain(part);
  } finally {
    host?.kill("SIGKILL");
    server.kill();
    await once(server, "close");
    await rm(folder, { recursive: true, maxRetries: 3 });
  }
}, 60_000);
