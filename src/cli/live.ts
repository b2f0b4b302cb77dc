import { cut } from "./text.ts";

/** The last lines of a terminal, drawn anew several times a second. Without a terminal it draws nothing. */
export interface Live {
  /** Puts a line under this name, made anew at each drawing and painted once it is cut to fit, or takes it away. */
  set(name: string, line: (() => string) | undefined, paint?: (line: string) => string): void;
  /** Writes something that stays, above the lines. */
  above(write: () => void): void;
  /** Takes the lines away for as long as somebody types. */
  pause(): void;
  resume(): void;
  readonly colours: boolean;
  readonly draws: boolean;
}

const frameMs = 100;
const frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏";

/** The spinner's picture of this moment. */
export const spinner = () => frames.charAt(Math.floor(Date.now() / frameMs) % frames.length);

/** Draws on this stream, if it is a terminal that can. */
export function createLive(stream: NodeJS.WriteStream, draws: boolean, colours: boolean): Live {
  const lines = new Map<string, (columns: number) => string>();
  let drawn = 0;
  let paused = false;
  let timer: NodeJS.Timeout | undefined;

  /** Also takes away what a key press may have left: "^C". */
  function erase(): void {
    if (draws && !paused) stream.write(`\r${drawn > 1 ? `\u001B[${drawn - 1}A` : ""}\u001B[J`);
    drawn = 0;
  }

  function draw(): void {
    if (paused || lines.size === 0) return;
    // More lines than the terminal has could not be taken back.
    const shown = [...lines.values()].slice(0, Math.max(1, (stream.rows || 24) - 1));
    erase();
    stream.write(shown.map((line) => line((stream.columns || 80) - 1)).join("\n"));
    drawn = shown.length;
  }

  return {
    colours,
    draws,
    set(name, line, paint = (text) => text) {
      if (!draws) return;
      erase();
      if (line === undefined) lines.delete(name);
      else lines.set(name, (columns) => paint(cut(line(), columns)));
      draw();
      if (lines.size > 0) timer ??= setInterval(draw, frameMs);
      else {
        clearInterval(timer);
        timer = undefined;
      }
    },
    above(write) {
      erase();
      write();
      draw();
    },
    pause() {
      erase();
      paused = true;
    },
    resume() {
      paused = false;
      draw();
    },
  };
}
