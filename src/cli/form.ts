import type { FormField, FormSchema } from "../protocol/form.ts";
import { type InputRequest, type InputResponse, unfit } from "../protocol/input.ts";
import { usage } from "./exit.ts";
import { oneLine } from "./text.ts";

/** Stands for a value in a command to type, and is none itself. */
export const blank = "…";

/** One of the values that a field may have. */
export interface Choice {
  readonly value: string;
  readonly title: string;
}

type Json = Readonly<Record<string, unknown>>;

/** The fields that a question asks for, by name; a URL has none. */
export function fieldsOf(request: InputRequest): [string, FormField][] {
  const schema = request.params?.requestedSchema as Partial<FormSchema> | undefined;
  return Object.entries(schema?.properties ?? {});
}

/** Whether a field must be answered. */
export function isRequired(request: InputRequest, name: string): boolean {
  const schema = request.params?.requestedSchema as Partial<FormSchema> | undefined;
  return schema?.required?.includes(name) === true;
}

/** What a field is called for people. */
export const titleOf = (name: string, field: FormField): string =>
  oneLine(typeof field.title === "string" ? field.title : name);

/** The values to choose from, if the field is a choice or a list of choices. */
export function choicesOf(field: FormField): Choice[] | undefined {
  const from = (field.type === "array" ? field.items : field) as Json | undefined;
  const branches = (from?.oneOf ?? from?.anyOf) as Json[] | undefined;
  if (Array.isArray(branches))
    return branches.map((one) => ({ value: String(one.const), title: String(one.title ?? one.const) }));
  const titles = from?.enumNames as string[] | undefined;
  return (from?.enum as string[] | undefined)?.map((value, i) => ({ value, title: titles?.[i] ?? value }));
}

/** What the field has if nothing is said. */
export function presetOf({ default: preset }: FormField): string {
  if (Array.isArray(preset)) return oneLine(preset.join(", "));
  return oneLine(typeof preset === "string" ? preset : (JSON.stringify(preset) ?? ""));
}

/** What may be typed, in a few words. */
export function hintOf(field: FormField): string {
  const { minimum, maximum, format } = field as { minimum?: number; maximum?: number; format?: string };
  if (field.type === "boolean") return "yes or no";
  if (field.type === "array") return "several, with commas between them";
  if (field.type === "string") return format ?? "";
  const least = minimum === undefined ? "" : ` from ${minimum}`;
  return `${field.type === "integer" ? "a whole number" : "a number"}${least}${maximum === undefined ? "" : ` to ${maximum}`}`;
}

/** What a field takes: one of its choices, or what may be typed. */
export function takes(field: FormField): string {
  const choices = choicesOf(field)?.map(({ value }) => oneLine(value));
  return [choices?.join(" | ") ?? "", hintOf(field)].filter((note) => note !== "").join("; ");
}

/** What somebody typed, as the value that the field wants; what can't be one comes back as it is, to be refused. */
export function valueOf(field: FormField, text: string): unknown {
  if (field.type === "boolean") {
    if (/^(y|yes|true|1|on)$/i.test(text)) return true;
    return /^(n|no|false|0|off)$/i.test(text) ? false : text;
  }
  if (field.type === "integer" || field.type === "number") {
    const number = Number(text);
    return text.trim() === "" || Number.isNaN(number) ? text : number;
  }
  const choices = choicesOf(field);
  if (field.type === "array")
    return text
      .split(",")
      .map((one) => chosen(choices, one.trim()))
      .filter((one) => one !== "");
  return chosen(choices, text);
}

/** A value by itself, by its title, or by its place in the list. */
function chosen(choices: readonly Choice[] | undefined, text: string): string {
  const found = choices?.find(({ value }) => value === text) ?? choices?.find(({ title }) => title === text);
  return (found ?? (/^\d+$/.test(text) ? choices?.[Number(text) - 1] : undefined))?.value ?? text;
}

/** Why this response can't be sent, or null. A schema that makes no sense to us is left to the server. */
export function complaintOf(request: InputRequest, response: InputResponse): string | null {
  try {
    return unfit(request, response);
  } catch {
    return null;
  }
}

/** Why the field can't have this value, or null. */
export function fieldComplaint(name: string, field: FormField, value: unknown): string | null {
  const requestedSchema = { type: "object", properties: { [name]: field }, required: [name] };
  const request = { method: "elicitation/create", params: { requestedSchema } } as const;
  const complaint = complaintOf(request, { action: "accept", content: { [name]: value } });
  return complaint?.replace(/^(content|result\.content)(\.[^:]*)?: /, "") ?? null;
}

/** What was given for a field, as its value. Throws a usage error that says what the field takes. */
function givenValue(name: string, field: FormField, text: string): unknown {
  if (text === blank) throw usage(oneLine(`${name}: give a value in place of "${blank}".`));
  const value = valueOf(field, text);
  const complaint = fieldComplaint(name, field, value);
  if (complaint === null) return value;
  // Of a text or a list the question's line doesn't tell all: its length, say.
  const isFree = field.type === "array" || (field.type === "string" && choicesOf(field) === undefined);
  throw usage(`${oneLine(`${name}: ${isFree ? complaint : takes(field)}`)}.`);
}

/** The answer that these `name=value` pairs make, with defaults where nothing is said. Throws a usage error. */
export function answerFrom(request: InputRequest, given: readonly [string, string][]): InputResponse {
  if (request.method !== "elicitation/create") throw usage("The question is not one for a person.");
  const fields = new Map(fieldsOf(request));
  const stranger = given.find(([name]) => !fields.has(name));
  if (stranger !== undefined)
    throw usage(
      `The question has no field "${stranger[0]}". It has: ${[...fields.keys()].map(oneLine).join(", ") || "none"}.`,
    );
  const content: Record<string, unknown> = {};
  for (const [name, { default: value }] of fields) if (value !== undefined) content[name] = value;
  for (const [name, text] of given) content[name] = givenValue(name, fields.get(name) ?? {}, text);
  const missing = [...fields].find(([name]) => isRequired(request, name) && content[name] === undefined);
  if (missing !== undefined) throw usage(oneLine(`${missing[0]} is needed: ${takes(missing[1]) || "text"}.`));
  // A URL is only visited; an answer to it has no content.
  const answer = request.params?.mode === "url" ? { action: "accept" } : { action: "accept", content };
  const complaint = complaintOf(request, answer)?.replace(/^content\./, "");
  if (complaint !== undefined) throw usage(`${oneLine(complaint)}.`);
  return answer;
}
