/** Runs actions on one task in the order in which they were called, and those on different tasks side by side. */
export function createLines(): <T>(id: string, action: () => Promise<T>) => Promise<T> {
  const tails = new Map<string, Promise<void>>();
  return (id, action) => {
    const before = tails.get(id);
    const running = before === undefined ? action() : before.then(action);
    const tail = running.then(
      () => {},
      () => {},
    );
    tails.set(id, tail);
    void tail.then(() => {
      if (tails.get(id) === tail) tails.delete(id);
    });
    return running;
  };
}
