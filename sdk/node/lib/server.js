'use strict';

const fs = require('node:fs/promises');
const os = require('node:os');
const path = require('node:path');

const { Control, noControl } = require('./control');
const { Process, find } = require('./process');

const START_MS = 30_000;

/** What servers and forks have in common. */
class Running {
  #close;
  #process;

  constructor(process, control, close) {
    this.#process = process;
    this.#close = close;
    this.control = control;
  }

  /** Stops the server. */
  close() {
    return this.#close();
  }

  [Symbol.asyncDispose ?? Symbol('asyncDispose')]() {
    return this.close();
  }

  /**
   * Writes the store, the journal and the log to files of a new directory in the given one, in that of REVSTORE_ARTIFACTS, or in
   * that for temporary files, and returns its path.
   */
  async save(name, directory) {
    const base = directory ?? process.env.REVSTORE_ARTIFACTS ?? path.join(os.tmpdir(), 'revstore-artifacts');
    await fs.mkdir(base, { recursive: true });
    const to = await fs.mkdtemp(path.join(base, `${name.replace(/[^\w.-]/g, '_').slice(0, 100)}-`));
    if (this.#process) await fs.writeFile(path.join(to, 'server.log'), this.#process.output);
    if (this.control !== noControl) {
      const files = { 'journal.jsonl': () => this.control.journalLines(), 'dump.txt': () => this.control.dump() };
      for (const [file, content] of Object.entries(files)) {
        try {
          await fs.writeFile(path.join(to, file), await content());
        } catch (error) {
          // It must not hide why the test has failed.
          await fs.writeFile(path.join(to, `${file}.error`), `${error}\n`);
        }
      }
    }
    return to;
  }
}

function controlFlags(control, clock) {
  const listen = control ? ['--control-listen-url=http://127.0.0.1:0'] : [];
  return clock ? [...listen, `--control-clock=${clock}`] : listen;
}

/** An etcd, or a fork of one. */
class Server extends Running {
  constructor(endpoint, ...running) {
    super(...running);
    this.endpoint = endpoint;
  }

  /** Starts a server. */
  static async start({ binary, clock, flags = [], control = true, startTimeout = START_MS } = {}) {
    const child = await Process.start(
      'revstore',
      find('revstore', 'REVSTORE_BIN', binary),
      [
        '--listen-client-urls=http://127.0.0.1:0',
        '--advertise-client-urls=http://127.0.0.1:0',
        '--listen-peer-urls=http://127.0.0.1:0',
        ...controlFlags(control, clock),
        ...flags,
      ],
      startTimeout,
    );
    const [endpoint, url] = child.ready.split(' ');
    return new Server(endpoint, child, url ? new Control(url) : noControl, () => child.stop());
  }

  /** Starts an independent server with the same history, within milliseconds. Its clock is its own. */
  async fork() {
    const { id, endpoint, control } = await this.control.fork();
    return new Server(endpoint, undefined, new Control(control), () => this.control.drop(id));
  }
}

/** A Kubernetes API server. */
class ApiServer extends Running {
  constructor(url, kubeconfig, ...running) {
    super(...running);
    this.url = url;
    this.kubeconfig = kubeconfig;
  }

  /** Starts a server. */
  static async start({ binary, clock, flags = [], control = true, startTimeout = START_MS } = {}) {
    const child = await Process.start(
      'revstore-apiserver',
      find('revstore-apiserver', 'REVSTORE_APISERVER_BIN', binary),
      ['--secure-port=0', '--listen-http=127.0.0.1:0', ...controlFlags(control, clock), ...flags],
      startTimeout,
    );
    const space = child.ready.indexOf(' ');
    const end = control ? child.ready.lastIndexOf(' ') : undefined;
    const [url, kubeconfig] = [child.ready.slice(0, space), child.ready.slice(space + 1, end)];
    const controlled = control ? new Control(child.ready.slice(end + 1)) : noControl;
    return new ApiServer(url, kubeconfig, child, controlled, () => child.stop());
  }
}

module.exports = { ApiServer, Server };
