import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EtcdLeaseInvalidError, GRPCInvalidArgumentError, GRPCOutOfRangeError } from 'etcd3';

import { connect, LIMIT, start } from './server.js';

test('put, get, delete', LIMIT, async (t) => {
  const client = connect(await start(t));
  assert.equal(await client.get('a').string(), null);
  assert.equal((await client.put('a').value('1')).header.revision, '2');
  assert.equal((await client.put('a').value('2').getPrevious()).value.toString(), '1');
  const got = await client.get('a').exec();
  const [kv] = got.kvs;
  assert.equal(kv.value.toString(), '2');
  assert.deepEqual([kv.create_revision, kv.mod_revision, kv.version], ['2', '3', '2']);
  assert.equal(await client.get('a').revision('2').string(), '1');
  assert.equal((await client.delete().key('a')).deleted, '1');
  assert.equal((await client.delete().key('a')).deleted, '0');
});

test('ranges', LIMIT, async (t) => {
  const client = connect(await start(t));
  for (const [key, value] of [['k/a', 3], ['k/b', 1], ['k/c', 2], ['l', 4]]) {
    await client.put(key).value(value);
  }
  assert.deepEqual(await client.getAll().prefix('k/').numbers(), { 'k/a': 3, 'k/b': 1, 'k/c': 2 });
  assert.deepEqual(await client.getAll().keys(), ['k/a', 'k/b', 'k/c', 'l']);
  assert.equal(await client.getAll().prefix('k/').count(), 3);
  const sorted = await client.getAll().prefix('k/').sort('Value', 'Descend').limit(2).exec();
  assert.deepEqual(sorted.kvs.map((kv) => kv.key.toString()), ['k/a', 'k/c']);
  assert.equal(sorted.more, true);
  const inner = client.namespace('k/');
  assert.deepEqual(await inner.getAll().strings(), { a: '3', b: '1', c: '2' });
  assert.equal((await client.delete().prefix('k/')).deleted, '3');
});

test('transactions', LIMIT, async (t) => {
  const client = connect(await start(t));
  const create = (value) =>
    client
      .if('k', 'Create', '==', 0)
      .then(client.put('k').value(value))
      .else(client.get('k'))
      .commit();
  assert.equal((await create('1')).succeeded, true);
  const second = await create('2');
  assert.equal(second.succeeded, false);
  assert.equal(second.responses[0].response_range.kvs[0].value.toString(), '1');
  const compared = await client
    .if('k', 'Value', '==', '1')
    .and('k', 'Version', '<', 2)
    .and('k', 'Mod', '==', 2)
    .then(client.delete().key('k'))
    .commit();
  assert.equal(compared.succeeded, true);
});

test('software transactional memory', LIMIT, async (t) => {
  const client = connect(await start(t));
  await client.put('count').value(0);
  const add = () =>
    client.stm({ retries: 100 }).transact(async (memory) => {
      const count = await memory.get('count').number();
      await memory.put('count').value(count + 1);
    });
  await Promise.all(Array.from({ length: 10 }, add));
  assert.equal(await client.get('count').number(), 10);
});

test('compaction and errors', LIMIT, async (t) => {
  const client = connect(await start(t));
  await client.put('k').value('1');
  await client.put('k').value('2');
  await client.kv.compact({ revision: '3' });
  await assert.rejects(client.get('k').revision('2').string(), (error) => {
    assert.ok(error instanceof GRPCOutOfRangeError);
    assert.match(error.message, /etcdserver: mvcc: required revision has been compacted/);
    return true;
  });
  await assert.rejects(client.put('').value('v').exec(), GRPCInvalidArgumentError);
  await assert.rejects(client.put('k').value('v').lease('99').exec(), EtcdLeaseInvalidError);
});
