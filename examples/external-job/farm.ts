import { z } from "zod";

const jobSchema = z.object({
  id: z.string(),
  status: z.enum(["running", "done", "failed", "cancelled"]),
  frame: z.int(),
  frames: z.int(),
  labels: z.record(z.string(), z.string()),
  film: z.string().optional(),
  error: z.string().optional(),
});

/** A job of the render farm. */
export type Job = z.output<typeof jobSchema>;

/** What to render. */
export interface NewJob {
  readonly scene: string;
  readonly frames: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly callback?: string;
}

/** The render farm refused: it would do so again. Other failures pass, and may be tried again. */
export class Refusal extends Error {
  override name = "Refusal";
}

/** Reads what the farm posts to a callback. Throws when it is no job. */
export const readJob = (body: unknown): Job => jobSchema.parse(body);

/** A client of the render farm's API. */
export function createFarm(url: string) {
  async function call(path: string, { signal, ...init }: RequestInit = {}): Promise<unknown> {
    const late = AbortSignal.timeout(5_000);
    const response = await fetch(new URL(path, url), {
      ...init,
      signal: signal ? AbortSignal.any([signal, late]) : late,
    });
    const { status } = response;
    if (response.ok) return response.json();
    const text = `The render farm answered ${status}: ${await response.text()}`;
    throw status >= 400 && status < 500 && status !== 408 && status !== 429 ? new Refusal(text) : new Error(text);
  }

  return {
    /** With the same key it is the same job. */
    async start(job: NewJob, key: string, signal: AbortSignal): Promise<Job> {
      const headers = { "content-type": "application/json", "idempotency-key": key };
      return readJob(await call("/jobs", { method: "POST", headers, body: JSON.stringify(job), signal }));
    },
    read: async (id: string, signal: AbortSignal) => readJob(await call(`/jobs/${id}`, { signal })),
    cancel: async (id: string) => readJob(await call(`/jobs/${id}`, { method: "DELETE" })),
    running: async () => z.array(jobSchema).parse(await call("/jobs?status=running")),
  };
}

export type Farm = ReturnType<typeof createFarm>;
