import { createInterface, type Interface } from "node:readline/promises";
import type { FormField } from "../protocol/form.ts";
import type { InputRequest, InputResponse } from "../protocol/input.ts";
import {
  choicesOf,
  complaintOf,
  fieldComplaint,
  fieldsOf,
  hintOf,
  isRequired,
  presetOf,
  titleOf,
  valueOf,
} from "./form.ts";
import type { Interrupts } from "./interrupts.ts";
import type { Output } from "./output.ts";
import { oneLine } from "./text.ts";

/** What is asked, by whom, and until when. */
export interface Question {
  readonly request: InputRequest;
  readonly from: string;
  readonly signal: AbortSignal;
  /** What "later" means here. */
  readonly later: string;
}

/** The word for leaving a question open. One without a key, of a server of 2025-11-25, can only be dismissed. */
export const laterFor = (key: string) => (key === "" ? "cancel" : "later");

/** What somebody answered; `open`: later, or not wanted any more; `ended`: the input has ended, and nobody is there. */
export type Asked = InputResponse | "open" | "ended";

/** Asks on the terminal, one question at a time. Once the input has ended nothing is asked any more. */
export type Ask = (question: Question) => Promise<Asked>;

/** Somebody who sits at the terminal. */
export function createAsk(out: Output, interrupts: Interrupts): Ask {
  let before: Promise<Asked> = Promise.resolve("open");
  return async (question) => {
    const turn = before.then(async (asked) => {
      if (asked === "ended") return "ended";
      return question.signal.aborted ? "open" : await askNow(question, out, interrupts);
    });
    before = turn.catch(() => "open");
    return await turn;
  };
}

async function askNow(question: Question, out: Output, interrupts: Interrupts): Promise<Asked> {
  out.live.pause();
  const line = createInterface({ input: process.stdin, output: process.stderr, terminal: out.isTerminal });
  const closed = new AbortController();
  line.once("close", () => closed.abort());
  line.on("SIGINT", interrupts.fire);
  const signal = AbortSignal.any([question.signal, closed.signal]);
  // Written at once: what comes next on the screen tells why. The end of the line is readline's.
  const takenBack = () => interrupts.count > 0 || process.stderr.write("\n  No answer is needed any more.");
  question.signal.addEventListener("abort", takenBack, { once: true });
  try {
    return await converse(question, line, signal);
  } catch (thrown) {
    if (!signal.aborted) throw thrown;
    if (question.signal.aborted) return "open";
    process.stderr.write("\n  The input has ended: nobody answers.\n");
    return "ended";
  } finally {
    question.signal.removeEventListener("abort", takenBack);
    line.close();
    out.live.resume();
  }
}

async function converse(
  { request, from, later }: Question,
  line: Interface,
  signal: AbortSignal,
): Promise<InputResponse | "open"> {
  const { message, url, mode } = request.params ?? {};
  const fields = fieldsOf(request);
  const say = (text: string) => process.stderr.write(`${text}\n`);
  say(`? ${from} asks: ${oneLine(typeof message === "string" ? message : "")}`);
  if (mode === "url") say(`  Open this in a browser, if you trust it: ${oneLine(String(url))}`);
  const accept = mode === "url" ? "done" : fields.length === 0 ? "yes" : "answer";
  for (;;) {
    const word = await line.question(`  [${accept}], decline or ${later}? `, { signal });
    const choice = word.trim().toLowerCase();
    if (choice === "") break;
    if (accept.startsWith(choice) || choice === "y") break;
    if (later.startsWith(choice)) return "open";
    if ("decline".startsWith(choice) || "no".startsWith(choice)) return { action: "decline" };
  }
  if (mode === "url") return { action: "accept" };
  for (;;) {
    const content: Record<string, unknown> = {};
    for (const [name, field] of fields) {
      const value = await askField(request, name, field, line, signal);
      if (value !== undefined) content[name] = value;
    }
    const answer = { action: "accept", content };
    const complaint = complaintOf(request, answer);
    if (complaint === null) return answer;
    say(`  ${oneLine(complaint)}`);
  }
}

async function askField(
  request: InputRequest,
  name: string,
  field: FormField,
  line: Interface,
  signal: AbortSignal,
): Promise<unknown> {
  const choices = choicesOf(field);
  const title = titleOf(name, field);
  if (typeof field.description === "string") process.stderr.write(`  ${oneLine(field.description)}\n`);
  for (const [i, choice] of (choices ?? []).entries()) process.stderr.write(`    ${i + 1}) ${oneLine(choice.title)}\n`);
  const required = isRequired(request, name);
  const notes = oneLine([hintOf(field), required ? "" : "optional"].filter((note) => note !== "").join(", "));
  const preset = field.default;
  const shown = preset === undefined ? "" : ` [${presetOf(field)}]`;
  for (;;) {
    const text = await line.question(`  ${title}${notes === "" ? "" : ` (${notes})`}${shown}: `, { signal });
    if (text === "" && preset !== undefined) return preset;
    if (text === "" && !required) return undefined;
    const value = valueOf(field, text);
    const complaint =
      text === "" && field.type !== "string" ? "An answer is needed." : fieldComplaint(name, field, value);
    if (complaint === null) return value;
    process.stderr.write(`  ${oneLine(complaint)}\n`);
  }
}
