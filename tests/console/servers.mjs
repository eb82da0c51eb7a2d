// Real servers: one alone, or three that `lockkeeper dev` runs. Their ports are any that are free.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const BINARY = process.env.LOCKKEEPER_BINARY;

class Program {
  constructor(args) {
    this.lines = [];
    this.heard = () => {};
    this.process = spawn(BINARY, args, { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: this.process.stdout }).on("line", line => { this.lines.push(line); this.heard(); });
  }

  // The match in a line that it has printed, or will.
  async says(pattern, from = 0, ms = 20_000) {
    const end = Date.now() + ms;
    for (;;) {
      const found = this.lines.slice(from).map(line => line.match(pattern)).find(Boolean);
      if (found) return found;
      if (Date.now() > end) throw new Error("the program does not say " + pattern + ":\n" + this.lines.join("\n"));
      await new Promise(resolve => { this.heard = resolve; setTimeout(resolve, 100); });
    }
  }

  async end() {
    const ended = new Promise(resolve => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    await ended;
  }
}

export async function one(...flags) {
  const program = new Program(["server", "--in-memory", "--port", "0", "--admin-addr", "127.0.0.1:0", ...flags]);
  program.admin = (await program.says(/(http:\/\/127\.0\.0\.1:\d+)\//))[1];
  program.address = (await program.says(/^connect\s+(\S+)/))[1].split(",")[0].replace(/^.*?([\w.]+:\d+).*$/, "$1");
  return program;
}

// Three of them, each { address, admin, mode }.
export async function three() {
  const program = new Program(["dev", "--port", "0"]);
  const members = async from => {
    const found = [];
    for (const id of [1, 2, 3]) {
      const [, address, mode, admin] = await program.says(new RegExp("^server " + id + " (\\S+)  (\\w+).*?(http://[0-9.]+:\\d+)?/?\\S*$"), from);
      found.push({ id, address, mode, admin });
    }
    return found;
  };
  program.members = await members(0);
  program.kill = async id => {
    const from = program.lines.length;
    program.process.stdin.write("kill " + id + "\n");
    await program.says(/server \d leads/, from);
  };
  return program;
}
