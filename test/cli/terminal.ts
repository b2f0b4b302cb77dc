import { execFileSync, spawnSync } from "node:child_process";
import path from "node:path";
import { expect, onTestFinished } from "vitest";
import { program, temporaryFolder } from "./program.ts";

export const hasTmux = spawnSync("tmux", ["-V"]).status === 0;

/** The program in a real pseudo-terminal. */
export interface Screen {
  /** What stands on the screen now; `styled` with the escape sequences of colours. */
  now(styled?: boolean): string;
  /** Waits until the screen holds this, and gives it. */
  shows(text: string | RegExp): Promise<string>;
  /** Types keys by tmux's names, such as `Enter` and `C-c`, or text. */
  type(...keys: string[]): void;
}

const quoted = (word: string) => `'${word.replaceAll("'", String.raw`'\''`)}'`;

/** Runs the program on a screen of 100 columns and 24 rows. When it has ended, the screen says `exit` and its code. */
export function onTerminal(args: readonly string[], env: Readonly<Record<string, string>> = {}): Screen {
  const folder = temporaryFolder();
  const socket = path.join(folder, "tmux");
  const tmux = (...words: string[]) => execFileSync("tmux", ["-S", socket, ...words], { encoding: "utf8", env: plain });
  const { CI: _ci, NO_COLOR: _colour, TMUX: _tmux, npm_command: _npm, ...plain } = process.env;
  const settings = Object.entries({ XDG_STATE_HOME: folder, ...env }).map(
    ([name, value]) => `${name}=${quoted(value)}`,
  );
  const command = [process.execPath, ...program, ...args].map(quoted).join(" ");
  const script = `trap : INT; ${settings.join(" ")} ${command}; echo "exit $?"; sleep 600`;
  tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", "sh", "-c", script);
  onTestFinished(() => void tmux("kill-server"));
  const now = (styled = false) => tmux("capture-pane", "-p", "-J", ...(styled ? ["-e"] : [])).trimEnd();
  return {
    now,
    type: (...keys) => void tmux("send-keys", ...keys),
    async shows(text) {
      const found = typeof text === "string" ? expect.stringContaining(text) : expect.stringMatching(text);
      await expect.poll(() => now(), { timeout: 20_000, interval: 100 }).toEqual(found);
      return now();
    },
  };
}

/** A screen as it is kept: without what differs from run to run. */
export const kept = (screen: string): string =>
  `${screen
    .replaceAll(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]/g, "⠋")
    .replaceAll(/ {2}\d+s$/gm, "  Ns")
    .replaceAll(/127\.0\.0\.1:\d+/g, "127.0.0.1:PORT")}\n`;
