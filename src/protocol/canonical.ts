/** JSON text that is the same for the same value, in whatever order its keys came. Throws a `RangeError` where it is too deep. */
export function canonical(value: unknown): string {
  // Sorted first and then written as a whole: a replacer, called for each part, takes several times as long.
  return JSON.stringify(sorted(value));
}

function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  // What writes itself is no plain JSON yet.
  if ("toJSON" in value && typeof value.toJSON === "function") return value;
  const entries = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  // `fromEntries` defines its properties, so that even a key named `__proto__` is an ordinary one.
  return Object.fromEntries(entries.map(([key, part]) => [key, sorted(part)]));
}
