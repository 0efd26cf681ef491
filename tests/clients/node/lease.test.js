import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { EtcdLeaseInvalidError, EtcdLockFailedError } from 'etcd3';

import { connect, LIMIT, start } from './server.js';

test('a lease and its key', LIMIT, async (t) => {
  const client = connect(await start(t));
  const lease = client.lease(60);
  await lease.put('k').value('v');
  const { kvs } = await client.get('k').exec();
  assert.equal(kvs[0].lease, await lease.grant());
  assert.equal((await lease.keepaliveOnce()).TTL, '60');
  await lease.revoke();
  assert.equal(await client.get('k').string(), null);
  await assert.rejects(client.put('k').lease(kvs[0].lease).value('v').exec(), EtcdLeaseInvalidError);
});

test('a lease is kept alive until it is released', LIMIT, async (t) => {
  const client = connect(await start(t));
  const lease = client.lease(2);
  const watcher = await client.watch().key('k').create();
  const deleted = once(watcher, 'delete');
  await lease.put('k').value('v');
  const started = Date.now();
  while (Date.now() - started < 4000) {
    const [renewal] = await once(lease, 'keepaliveSucceeded');
    assert.equal(renewal.TTL, '2');
  }
  assert.equal(await client.get('k').string(), 'v');
  lease.release();
  await deleted;
  await watcher.cancel();
});

test('a lease that another client revoked is lost', LIMIT, async (t) => {
  const client = connect(await start(t));
  const lease = client.lease(1);
  const id = await lease.grant();
  const lost = once(lease, 'lost');
  await client.leaseClient.leaseRevoke({ ID: id });
  const [error] = await lost;
  assert.ok(error instanceof EtcdLeaseInvalidError);
});

test('locks', LIMIT, async (t) => {
  const client = connect(await start(t));
  const held = await client.lock('lock').ttl(60).acquire();
  await assert.rejects(client.lock('lock').acquire(), EtcdLockFailedError);
  await held.release();
  const next = await client.lock('lock').acquire();
  await next.release();
});

test('elections', LIMIT, async (t) => {
  const server = await start(t);
  const client = connect(server);
  const election = client.election('leader', 60);
  const observer = await election.observe();
  assert.equal(observer.leader(), undefined);
  const first = election.campaign('one');
  const changed = once(observer, 'change');
  await first.wait();
  assert.deepEqual(await changed, ['one']);
  assert.equal(await election.leader(), 'one');

  const second = connect(server).election('leader', 60).campaign('two');
  await second.getCampaignKey();
  const proclaimed = once(observer, 'change');
  await first.proclaim('still one');
  assert.deepEqual(await proclaimed, ['still one']);
  const elected = once(second, 'elected');
  await first.resign();
  await elected;
  while (observer.leader() !== 'two') {
    await once(observer, 'change');
  }
  await second.resign();
  await observer.cancel();
});
