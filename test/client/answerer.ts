/** A process that answers one question of a task by hand: `answerer.ts URL LOG TASK KEY NAME`. */
import { Client } from "@modelcontextprotocol/client";
import { TaskClient, fileLog } from "../../src/client/index.ts";

const [url = "", log = "", taskId = "", key = "", name = ""] = process.argv.slice(2);
const tasks = await new TaskClient(new Client({ name: "answerer", version: "1" }), { log: fileLog(log) }).connect(url);
await tasks.answer(taskId, key, { action: "accept", content: { name } });
await tasks.close();
