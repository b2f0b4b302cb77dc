/** Shows where a pipeline is: a line that moves on a terminal, plain lines elsewhere. */
export function createScreen(output: NodeJS.WriteStream) {
  let stage: string | undefined;
  let since = 0;
  const seconds = () => `${((Date.now() - since) / 1_000).toFixed(1)} s`;
  const rewrite = (line: string) => output.write(`\r\u001b[K${line}`);
  const timer = output.isTTY ? setInterval(() => stage && rewrite(`  … ${stage}  ${seconds()}`), 100) : undefined;

  function finish(mark: "✓" | "✗"): void {
    if (stage !== undefined)
      (output.isTTY ? rewrite : (line: string) => output.write(line))(`  ${mark} ${stage}  ${seconds()}\n`);
    stage = undefined;
  }

  return {
    /** The stage before is done, and this one begins. */
    stage(name: string): void {
      if (name === stage) return;
      finish("✓");
      stage = name;
      since = Date.now();
      if (!output.isTTY) output.write(`  … ${name}\n`);
    },
    /** Something happened meanwhile. */
    say(line: string): void {
      if (output.isTTY) rewrite("");
      output.write(`${line}\n`);
    },
    close(mark: "✓" | "✗"): void {
      finish(mark);
      clearInterval(timer);
    },
  };
}
