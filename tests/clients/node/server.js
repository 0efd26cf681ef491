// Processes of the server under test, each with its own port and data directory.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { Etcd3 } from 'etcd3';

// Text in the log line of a server that accepts requests (FL-13).
const READY = 'ready to serve client requests';

// The maximum number of starts. A start fails if another process takes the chosen port first.
const PORT_ATTEMPTS = 5;

const SERVE = path.join(import.meta.dirname, '..', 'serve');

// The time limit of a test.
export const LIMIT = { timeout: 60_000 };

// Starts a server that runs until the end of the test `t`.
export async function start(t, ...flags) {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'revstore-clients-node-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  let log = '';
  for (let attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
    const port = await freePort();
    const data = path.join(directory, `data-${attempt}`);
    const process = spawn(SERVE, [port, data, ...flags], { stdio: ['ignore', 'ignore', 'pipe'] });
    const exited = once(process, 'exit');
    t.after(async () => {
      process.kill('SIGKILL');
      await exited;
    });
    log = '';
    const ready = new Promise((resolve) => {
      const lines = createInterface({ input: process.stderr });
      lines.on('line', (line) => {
        log += `${line}\n`;
        if (line.includes(READY)) resolve(true);
      });
      lines.on('close', () => resolve(false));
    });
    if (await ready) return { t, port, host: `127.0.0.1:${port}` };
    if (!log.includes('address already in use')) break;
  }
  throw new Error(`the server did not start:\n${log}`);
}

// Creates a client of a server or of a proxy that is closed at the end of the test.
export function connect({ t, host }, options = {}) {
  const client = new Etcd3({ hosts: host, ...options });
  t.after(() => client.close());
  return client;
}

// Forwards connections of a client to a server until a test closes them.
export async function proxy({ t, port }) {
  const sockets = new Set();
  let closed = false;
  const listener = net.createServer((client) => {
    if (closed) {
      client.destroy();
      return;
    }
    const upstream = net.connect(port, '127.0.0.1');
    for (const [from, to] of [[client, upstream], [upstream, client]]) {
      sockets.add(from);
      from.pipe(to);
      from.on('error', () => from.destroy());
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise((listening) => listener.listen(0, '127.0.0.1', listening));
  const disconnect = () => {
    closed = true;
    for (const socket of sockets) socket.destroy();
  };
  t.after(() => {
    disconnect();
    listener.close();
  });
  return {
    t,
    host: `127.0.0.1:${listener.address().port}`,
    disconnect,
    reconnect: () => {
      closed = false;
    },
  };
}

async function freePort() {
  const probe = net.createServer();
  await new Promise((listening) => probe.listen(0, '127.0.0.1', listening));
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  return port;
}
