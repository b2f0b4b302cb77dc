import { TaskError, taskTool, type TaskContext } from "mcp-tasks";
import { z } from "zod";
import { Refusal, type Farm, type Job, type NewJob } from "./farm.ts";

export interface RenderOptions {
  readonly farm: Farm;
  /** Where the farm is to say that the job of this task has ended. */
  readonly callbackFor: (taskId: string) => string;
}

const inputSchema = z.object({
  scene: z.string().min(1),
  frames: z.int().min(1),
});
const outputSchema = z.object({ job: z.string(), film: z.string().describe("Where the film is") });
/** A cancelled task that waits is resumed, and its wait throws: time to cancel the job. */
const task = { timeout: "1h", onCancel: "unwind" } as const;

/** The event that a job's end is for the task that waits for it. */
export const jobEnded = "job ended";

/** Two ways to wait for a job of somebody else's API. Both hold nothing meanwhile: no worker, memory or connection. */
export function renderTools({ farm, callbackFor }: RenderOptions) {
  const polled = taskTool({
    name: "render_polled",
    description: "Renders a scene, and asks the render farm now and then how far it is",
    inputSchema,
    outputSchema,
    task,
    async run({ scene, frames }, task) {
      const id = await start(task, { scene, frames, labels: labelsOf(task) });
      const ended = task.poll("end", { every: "1s" }, async ({ signal }) => {
        const job = await farm.read(id, signal).catch(passing);
        if (job !== undefined)
          await task.report(`${id}: frame ${job.frame} of ${job.frames}`, { progress: job.frame, total: job.frames });
        return job?.status === "running" ? undefined : job;
      });
      return finish(task, id, ended);
    },
  });

  const pushed = taskTool({
    name: "render_pushed",
    description: "Renders a scene, and is told by the render farm when it is done",
    inputSchema,
    outputSchema,
    task,
    async run({ scene, frames }, task) {
      const id = await start(task, { scene, frames, labels: labelsOf(task), callback: callbackFor(task.id) });
      await task.report(`${id}: rendering`);
      return finish(task, id, task.event<Job>(jobEnded));
    },
  });

  /**
   * Starts the job once. When the answer is lost, with the farm or with this process, the step is tried again; it has
   * the same key then, and the farm answers with the same job.
   */
  async function start(task: TaskContext, job: NewJob): Promise<string> {
    const retry = { attempts: 8, backoff: "250ms" } as const;
    const started = await task.step("start", ({ key, signal }) => farm.start(job, key, signal).catch(refused), {
      retry,
    });
    if ("refused" in started) throw new Error(started.refused);
    return started.id;
  }

  async function finish(task: TaskContext, id: string, ended: Promise<Job>) {
    try {
      return resultOf(await ended);
    } catch (error) {
      // Other reasons to stop, a shutdown for instance, leave the job to the next attempt.
      if (error instanceof TaskError && error.code === "CANCELLED") await farm.cancel(id).catch(leftToOrphans);
      throw error;
    }
  }

  return [polled, pushed];
}

/** By these a job can be told to be of no use any more: see `orphans.ts`. */
const labelsOf = ({ id, owner }: TaskContext) => ({ task: id, owner });

/** To try again what was refused is of no use: it is a result of the step. */
function refused(error: unknown): { refused: string } {
  if (error instanceof Refusal) return { refused: error.message };
  throw error;
}

/** The farm can't be reached now: there is no news. */
function passing(error: unknown): undefined {
  if (error instanceof Refusal) throw error;
}

/** The farm can't be reached now, and the task has no more time: see `orphans.ts`. */
function leftToOrphans(): void {}

function resultOf({ id, status, film, error }: Job) {
  if (film === undefined) throw new Error(`${id} ${status}${error === undefined ? "" : `: ${error}`}`);
  return { content: [{ type: "text" as const, text: `Rendered ${film}` }], structuredContent: { job: id, film } };
}
