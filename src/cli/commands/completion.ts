import { Argument, type Command } from "commander";
import type { Run } from "../context.ts";
import { exits } from "../exit.ts";
import { examples } from "../options.ts";

/** `mcp-tasks completion SHELL`. */
export function addCompletion(program: Command, run: Run): void {
  const command = program
    .command("completion")
    .description("Print a script that completes commands and options in your shell")
    .addArgument(new Argument("<shell>").choices(["bash", "zsh", "fish"]));
  examples(command, [
    "mcp-tasks completion bash > ~/.local/share/bash-completion/completions/mcp-tasks",
    "mcp-tasks completion zsh > ~/.zfunc/_mcp-tasks",
    "mcp-tasks completion fish > ~/.config/fish/completions/mcp-tasks.fish",
  ]);
  command.action((shell: "bash" | "zsh" | "fish") =>
    run({}, async ({ out }) => {
      out.print(scripts[shell](wordsOf(program)));
      return exits.done;
    }),
  );
}

interface CommandWords {
  readonly name: string;
  readonly about: string;
  readonly options: readonly { readonly flag: string; readonly about: string }[];
}

function wordsOf(program: Command): CommandWords[] {
  return program.commands.map((command) => ({
    name: command.name(),
    about: command.description(),
    options: command.options.map(({ long, description }) => ({ flag: long ?? "", about: description })),
  }));
}

const quoted = (text: string) => `'${text.replaceAll("'", String.raw`'\''`)}'`;

const scripts = {
  bash: (commands: readonly CommandWords[]) => `_mcp_tasks() {
  local word=\${COMP_WORDS[COMP_CWORD]} words
  case \${COMP_WORDS[1]} in
${commands.map(({ name, options }) => `    ${name}) words="${options.map(({ flag }) => flag).join(" ")} --help" ;;`).join("\n")}
    *) words="${commands.map(({ name }) => name).join(" ")} --help --version" ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words="${commands.map(({ name }) => name).join(" ")} --help --version"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _mcp_tasks mcp-tasks
`,
  zsh: (commands: readonly CommandWords[]) => `#compdef mcp-tasks
_mcp_tasks() {
  if (( CURRENT == 2 )); then
    local -a commands=(
${commands.map(({ name, about }) => `      ${quoted(`${name}:${about}`)}`).join("\n")}
    )
    _describe command commands
    return
  fi
  case $words[2] in
${commands.map(({ name, options }) => `    ${name}) compadd -- ${options.map(({ flag }) => flag).join(" ")} --help; _files ;;`).join("\n")}
  esac
}
compdef _mcp_tasks mcp-tasks
`,
  fish: (commands: readonly CommandWords[]) =>
    `${commands
      .flatMap(({ name, about, options }) => [
        `complete -c mcp-tasks -n __fish_use_subcommand -f -a ${name} -d ${quoted(about)}`,
        ...options.map(({ flag, about }) => {
          return `complete -c mcp-tasks -n '__fish_seen_subcommand_from ${name}' -l ${flag.slice(2)} -d ${quoted(about)}`;
        }),
      ])
      .join("\n")}\n`,
};
