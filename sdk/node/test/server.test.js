'use strict';
// What a client sees of a server whose time and faults the test controls.

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');

const { Etcd3 } = require('etcd3');
const { ControlError, Server, withApiServer, withFork, withRevstore } = require('..');

const HOUR = 3_600_000;

/** Runs `body` with a client of a server. */
async function connected({ endpoint }, body) {
  const client = new Etcd3({ hosts: endpoint });
  try {
    return await body(client);
  } finally {
    client.close();
  }
}

const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

test(
  'a lease expires when the test advances the time',
  withRevstore({ clock: 'manual' }, (server) =>
    connected(server, async (client) => {
      // The client keeps the lease alive only as long as time passes.
      const lease = client.lease(3600, { autoKeepAlive: false });
      await lease.put('session').value('mine');
      const [{ due }] = await server.control.pending();
      assert.ok(due <= HOUR);
      const clock = await server.control.advance(HOUR);
      assert.deepEqual([clock.now, clock.mode], [HOUR, 'manual']);
      assert.equal(await client.get('session'), null);
    }),
  ),
);

test(
  'a lost answer is followed by a correct retry',
  withRevstore((server) =>
    connected(server, async (client) => {
      const id = await server.control.addFault({ methods: ['Txn'], next: 1, errorAfter: 'DATA_LOSS:the answer is lost' });
      // The write says under which conditions it may be repeated.
      const create = () => client.if('order', 'Create', '==', 0).then(client.put('order').value('one')).commit();
      await assert.rejects(create(), /the answer is lost/);
      assert.equal((await create()).succeeded, false);
      assert.equal(await client.get('order').string(), 'one');
      const [fault] = await server.control.faults();
      assert.deepEqual([fault.id, fault.fired], [id, 1]);
      assert.equal(await server.control.clearFaults(), 1);
    }),
  ),
);

test(
  'a watch that is canceled as compacted recovers',
  withRevstore((server) =>
    connected(server, async (client) => {
      const canceled = await client.watch().key('key').create();
      const error = once(canceled, 'error');
      await server.control.waitWatchers(1, 60_000);
      assert.equal(await server.control.cancelWatchesCompacted(), 1);
      assert.match((await error).message, /canceled/);
      // As after a real compaction: read, and watch from the revision of the read.
      const { header } = await client.get('key').exec();
      const watch = await client.watch().key('key').startRevision(`${Number(header.revision) + 1}`).create();
      const put = once(watch, 'put');
      await client.put('key').value('after');
      assert.equal(`${(await put).value}`, 'after');
      await watch.cancel();
    }),
  ),
);

test(
  'fifty tests have a fork each',
  withRevstore((server, t) =>
    connected(server, async (client) => {
      await client.put('fixture').value('shared');
      const one = (number) =>
        withFork(server, (fork) =>
          connected(fork, async (own) => {
            await own.put('own').value(`${number}`);
            assert.equal(await own.get('fixture').string(), 'shared');
            assert.equal(await own.get('own').string(), `${number}`);
          }),
        );
      await Promise.all(Array.from({ length: 50 }, (_, number) => t.test(`fork ${number}`, { concurrency: true }, one(number))));
      assert.equal(await client.get('own'), null);
      assert.deepEqual(await server.control.forks(), []);
    }),
  ),
);

let shared;
before(async () => (shared = await Server.start()));
after(() => shared.close());
for (const number of [1, 2, 3]) {
  test(
    `forks of a server of the file do not see each other: ${number}`,
    withFork(
      () => shared,
      (fork) =>
        connected(fork, async (client) => {
          assert.equal(await client.get('own'), null);
          await client.put('own').value(`${number}`);
        }),
    ),
  );
}

test(
  'the journal has the requests',
  withRevstore((server) =>
    connected(server, async (client) => {
      await client.put('key').value('value');
      const records = [];
      for await (const record of server.control.journal({ methods: ['Put'] })) records.push(record);
      assert.deepEqual([records.length, records[0].revision, `${records[0].keys[0].key}`], [1, 2, 'key']);
      // Following ends with the loop.
      for await (const record of server.control.journal({ follow: true })) {
        if (record.method.endsWith('Put')) break;
      }
    }),
  ),
);

test(
  'terms begin',
  withRevstore(async (server) => {
    const { term } = await server.control.newTerm();
    assert.equal((await server.control.newTerm()).term, term + 1);
  }),
);

test(
  'a dump replaces the store of another server',
  withRevstore((server) =>
    connected(server, async (client) => {
      await client.put('key').value('value');
      const other = await Server.start();
      try {
        assert.equal((await other.control.load(await server.control.dump())).revision, 2);
        await connected(other, async (ofOther) => assert.equal(await ofOther.get('key').string(), 'value'));
        await assert.rejects(other.control.importSnapshot(Buffer.from('no snapshot')), { code: ControlError.INVALID_ARGUMENT });
      } finally {
        await other.close();
      }
    }),
  ),
);

test(
  'refused requests are errors with code and text',
  withRevstore(async ({ control }) => {
    await assert.rejects(control.restore('none'), { name: 'ControlError', code: ControlError.NOT_FOUND });
    await assert.rejects(control.addFault({ preset: 'nonsense' }), { code: ControlError.INVALID_ARGUMENT });
    await assert.rejects(control.waitRevision(100, 1), { code: ControlError.DEADLINE_EXCEEDED });
  }),
);

test(
  'a server without control has none',
  withRevstore({ control: false }, (server) =>
    connected(server, async (client) => {
      await client.put('key').value('value');
      assert.throws(() => server.control.advance(1), /without control/);
    }),
  ),
);

test(
  'the API server answers',
  withApiServer(async ({ url, kubeconfig, control }) => {
    assert.ok((await control.advance(HOUR)).now >= HOUR);
    assert.ok((await (await fetch(`${url}/version`)).json()).gitVersion);
    assert.match(require('node:fs').readFileSync(kubeconfig, 'utf8'), /apiVersion/);
  }),
);
