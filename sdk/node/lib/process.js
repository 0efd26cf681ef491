'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

/** The number of lines of a server's output that are kept, the last ones. */
const OUTPUT_LINES = 2000;

/** The time for which a server may finish after its standard input has ended. Then it is killed. */
const STOP_MS = 5000;

/** The time to wait for the rest of the output of a server that has ended. A child of it may hold the pipes. */
const OUTPUT_MS = 1000;

/** A server was not found, or did not start. */
class StartError extends Error {
  constructor(message) {
    super(message);
    this.name = 'StartError';
  }
}

function isExecutable(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

/** Returns the path of a server: the explicit one, that of the variable, that in this package, or the first in PATH. */
function find(name, variable, explicit, packed = path.join(__dirname, '../bin', name)) {
  for (const [source, file] of [['binary', explicit], [variable, process.env[variable]]]) {
    if (!file) continue;
    if (!isExecutable(file)) throw new StartError(`${source}: ${file} is not an executable file`);
    return file;
  }
  const directories = (process.env.PATH ?? '').split(path.delimiter);
  const found = [packed, ...directories.map((directory) => path.join(directory, name))].find(isExecutable);
  if (found) return found;
  throw new StartError(
    `${name} was not found: the option binary is not given, ${variable} is not set, this package was built without it ` +
      `(${packed}), and it is not in PATH (${directories.join(', ')})`,
  );
}

/** A running server. It ends with this process, whose pipe is its standard input. */
class Process {
  #child;
  #lines = [];
  #exited;

  /** Starts a server and waits for its ready line. */
  static async start(name, file, flags, startTimeout) {
    const server = new Process();
    server.ready = await server.#start(name, file, [...flags, '--exit-with-stdin'], startTimeout);
    return server;
  }

  get output() {
    return this.#lines.join('');
  }

  get pid() {
    return this.#child.pid;
  }

  async stop() {
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS);
    await this.#end();
    clearTimeout(timer);
  }

  /** Waits for the end. What a child of the server may write later must not keep this process alive. */
  async #end() {
    await this.#exited;
    this.#child.stdout.destroy();
    this.#child.stderr.destroy();
  }

  async #start(name, file, flags, startTimeout) {
    const child = spawn(file, flags, { stdio: 'pipe' });
    this.#child = child;
    const ready = new Promise((resolve) => this.#read(child.stdout, `${name} ready `, resolve));
    this.#read(child.stderr);
    // A server that has closed its input tells so by its end.
    child.stdin.on('error', () => {});
    let failure;
    child.on('error', (error) => (failure = error.message));
    this.#exited = new Promise((resolve) => {
      let timer;
      const ended = (code, signal) => {
        clearTimeout(timer);
        resolve(signal ?? `status ${code}`);
      };
      child.on('close', ended);
      child.on('exit', (code, signal) => (timer = setTimeout(ended, OUTPUT_MS, code, signal)));
    });
    let timer;
    const timeout = new Promise((resolve) => (timer = setTimeout(resolve, startTimeout)));
    const outcome = await Promise.race([
      ready.then((line) => ({ line })),
      this.#exited.then((how) => ({ reason: failure ?? `ended before it was ready, with ${how}` })),
      timeout.then(() => ({ reason: `was not ready within ${startTimeout} ms` })),
    ]);
    clearTimeout(timer);
    if (outcome.line !== undefined) {
      // A test that does not close its server ends anyway, and the server with it.
      for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle.unref();
      return outcome.line;
    }
    child.kill('SIGKILL');
    await this.#end();
    throw new StartError(`${file} ${outcome.reason}:\n${this.output}`);
  }

  /** Keeps the lines of a stream but the first with a prefix. */
  #read(stream, prefix, found) {
    readline.createInterface({ input: stream }).on('line', (line) => {
      if (prefix && line.startsWith(prefix)) {
        found(line.slice(prefix.length));
        prefix = undefined;
        return;
      }
      this.#lines.push(`${line}\n`);
      if (this.#lines.length > OUTPUT_LINES) this.#lines.shift();
    });
  }
}

module.exports = { Process, StartError, find };
