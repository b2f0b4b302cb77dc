import { expect, test } from "vitest";
import { parsed, run } from "../cli/program.ts";
import { startFixture } from "../fixture/start.ts";
import { wire } from "../wire/client.ts";
import { freshDatabase } from "./database.ts";

test("an operator lists, answers, cancels and checks the tasks of a Postgres database", async () => {
  const database = await freshDatabase();
  {
    await using fixture = await startFixture(["--db", database.url]);
    const on = (...words: string[]) => run([...words, "--db", database.url]);
    const server = wire(fixture.url);
    const asked = await server.start("confirm_delete");
    const slow = await server.start("slow_compute", { seconds: 60 });
    await server.until(asked, "input_required");

    const listed = parsed(await on("ls", "--json")).document.tasks;
    expect(listed).toMatchObject([{ taskId: slow }, { taskId: asked }]);
    expect(await on("answer", asked, "--set", "confirm=yes")).toMatchObject({ code: 0 });
    expect((await server.until(asked)).result?.content?.[0]?.text).toBe("Deleted file.txt");
    expect(await on("cancel", slow, "--wait")).toMatchObject({ code: 0 });
    expect(parsed(await on("doctor", "--json")).document).toEqual({
      tasks: { cancelled: 1, completed: 1 },
      problems: [],
    });
  }
  await database.drop();
});

test("a database that can't be reached is told as such, without its password", async () => {
  const { code, stderr } = await run(["ls", "--db", "postgres://me:secret@127.0.0.1:9/none"]);
  expect(code).toBe(4);
  expect(stderr).not.toContain("secret");
});
