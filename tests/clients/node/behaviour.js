// The driver of etcd3 for docs/client-behaviour.md: it executes the commands that it reads from standard
// input, and prints what the client does. ../behaviour/README.md has both forms.

import { createInterface } from 'node:readline';
import { Etcd3 } from 'etcd3';

const tell = (id, event, fields) => console.log(JSON.stringify({ id, event, ...fields }));

const text = (error) => `${error.name === 'Error' ? '' : `${error.constructor.name}: `}${error.message}`;

function connect({ endpoint, user, password, keepalive }) {
  const options = { hosts: endpoint };
  if (user) options.auth = { username: user, password };
  if (keepalive) {
    options.grpcOptions = { 'grpc.keepalive_time_ms': 10_000, 'grpc.keepalive_timeout_ms': 1_000 };
  }
  return new Etcd3(options);
}

const operations = {
  async put({ key, value }) {
    await client.put(key).value(value).exec();
    return '';
  },

  async get({ key }) {
    return (await client.get(key).string()) ?? '';
  },

  async create({ key, value }) {
    const done = await client.if(key, 'Create', '==', 0).then(client.put(key).value(value)).commit();
    return done.succeeded ? 'succeeded' : '';
  },

  watch({ id, key, revision }) {
    let builder = client.watch().prefix(key);
    if (revision) builder = builder.startRevision(String(revision));
    const watcher = builder.watcher();
    watcher.on('connected', () => tell(id, 'created'));
    watcher.on('data', ({ events }) => {
      for (const { kv } of events) {
        tell(id, 'item', { key: `${kv.key}`, value: `${kv.value}`, revision: Number(kv.mod_revision) });
      }
    });
    watcher.on('error', (error) => tell(id, 'failed', { text: text(error) }));
    watcher.on('end', () => tell(id, 'ended'));
  },

  async lock({ id, key, ttl }) {
    const lock = client.lock(key).ttl(ttl);
    await lock.acquire();
    // A private field in the types of the client: a lock itself reports nothing.
    lock.lease.on('lost', (error) => tell(id, 'lost', { text: `event "lost" of its lease: ${text(error)}` }));
    return '';
  },
};

let client;
// What no caller can catch would end the process.
process.on('uncaughtException', (error) => tell(0, 'uncaught', { text: text(error) }));
process.on('unhandledRejection', (error) => tell(0, 'uncaught', { text: text(error) }));

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const { id, op } = command;
  if (op === 'connect') {
    client = connect(command);
    tell(id, 'returned', { value: '' });
    continue;
  }
  Promise.resolve()
    .then(() => operations[op](command))
    .then(
      (value) => value !== undefined && tell(id, 'returned', { value }),
      (error) => tell(id, 'failed', { text: text(error) }),
    );
}
process.exit(0);
