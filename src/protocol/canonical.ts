/** JSON text that is the same for the same value, in whatever order its keys came. Throws a `RangeError` where it is too deep. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? // `fromEntries` defines its properties, so that even a key named `__proto__` is an ordinary one.
        Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}
