/** A form as a server asks for it, as far as the fixture's tools use it. */
interface Form {
  readonly requestedSchema?: { readonly properties?: Readonly<Record<string, { readonly type?: string }>> };
}

const samples: Readonly<Record<string, string | number | boolean>> = {
  boolean: true,
  string: "Ada",
  integer: 3,
  number: 3,
};

/** Fills in a form the way an agreeable person would: yes, "Ada", 3. */
export function filledIn(form: unknown): { action: "accept"; content: Record<string, string | number | boolean> } {
  const { properties = {} } = (form as Form).requestedSchema ?? {};
  const content = Object.entries(properties).map(([name, { type = "" }]) => [name, samples[type] ?? "Ada"] as const);
  return { action: "accept", content: Object.fromEntries(content) };
}
