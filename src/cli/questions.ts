import type { InputRequest } from "../protocol/input.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import type { Context } from "./context.ts";
import { blank, fieldsOf, isRequired, presetOf, takes, titleOf } from "./form.ts";
import { oneLine } from "./text.ts";

/** The words after `answer` that answer a question; each `…` stands for a value to fill in. */
export function answerWords(key: string, request: InputRequest): string[] {
  const needed = fieldsOf(request).filter(
    ([name, { default: preset }]) => isRequired(request, name) && preset === undefined,
  );
  const how = needed.length === 0 ? ["--accept"] : ["--set", ...needed.map(([name]) => `${name}=${blank}`)];
  return ["--key", key, ...how];
}

/** The command that goes on with a task: where somebody sits here it asks all, elsewhere it answers the first question. */
export function answerLine(task: DetailedTask, { line, out }: Pick<Context, "line" | "out">): string {
  const questions = task.status === "input_required" ? Object.entries(task.inputRequests) : [];
  const first = questions.find(([, { method }]) => method === "elicitation/create");
  return line("answer", task.taskId, ...(out.canAsk || first === undefined ? [] : answerWords(...first)));
}

/** A question and its fields in lines, for somebody who answers by `--set`. */
export function questionLines(key: string, request: InputRequest): string[] {
  const { message, url } = request.params ?? {};
  const lines = [`${oneLine(key)}: ${oneLine(typeof message === "string" ? message : request.method)}`];
  if (typeof url === "string") lines.push(`  ${oneLine(url)}`);
  for (const [name, field] of fieldsOf(request)) {
    const notes = [
      titleOf(name, field) === name ? "" : titleOf(name, field),
      takes(field),
      field.default === undefined ? "" : `default ${presetOf(field)}`,
      isRequired(request, name) ? "" : "optional",
    ];
    lines.push(`  --set ${oneLine(`${name}=… ${notes.filter((note) => note !== "").join("; ")}`)}`);
  }
  return lines;
}
