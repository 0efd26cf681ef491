import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';

import { connect, LIMIT, proxy, start } from './server.js';

// Collects the events of a watcher. The returned function waits for the next `count` events.
function events(watcher) {
  const seen = [];
  let wake = () => {};
  watcher.on('data', (response) => {
    for (const event of response.events) {
      const { key, value, mod_revision: revision } = event.kv;
      seen.push(`${event.type} ${key}=${value}@${revision}`);
    }
    wake();
  });
  return async (count) => {
    while (seen.length < count) {
      await new Promise((resolve) => {
        wake = resolve;
      });
    }
    return seen.splice(0, count);
  };
}

test('new events', LIMIT, async (t) => {
  const client = connect(await start(t));
  await client.put('k/a').value('0');
  const watcher = await client.watch().prefix('k/').withPreviousKV().create();
  const next = events(watcher);
  const changed = once(watcher, 'put');
  await client.put('k/a').value('1');
  const [kv, previous] = await changed;
  assert.equal(kv.value.toString(), '1');
  assert.equal(previous.value.toString(), '0');
  await client.put('other').value('1');
  const removed = once(watcher, 'delete');
  await client.delete().key('k/a');
  assert.equal((await removed)[1].value.toString(), '1');
  assert.deepEqual(await next(2), ['Put k/a=1@3', 'Delete k/a=@5']);
  await watcher.cancel();
});

test('past events, and many watchers of one client', LIMIT, async (t) => {
  const client = connect(await start(t));
  for (let i = 0; i < 20; i++) {
    await client.put(`k${i}`).value(i);
  }
  // The listeners are added at once, because past events arrive as soon as a watch is created.
  const watchers = Array.from({ length: 20 }, (_, i) =>
    client.watch().key(`k${i}`).startRevision('2').watcher(),
  );
  const all = client.watch().prefix('k').startRevision('2').watcher();
  const nexts = watchers.map(events);
  const nextOfAll = events(all);
  for (let i = 0; i < 20; i++) {
    await client.put(`k${i}`).value('new');
  }
  for (const [i, next] of nexts.entries()) {
    assert.deepEqual(await next(2), [`Put k${i}=${i}@${i + 2}`, `Put k${i}=new@${i + 22}`]);
  }
  assert.equal((await nextOfAll(40)).at(-1), 'Put k19=new@41');
  await Promise.all([...watchers, all].map((watcher) => watcher.cancel()));
});

test('a watch with a filter', LIMIT, async (t) => {
  const client = connect(await start(t));
  const watcher = await client.watch().key('k').only('delete').create();
  const next = events(watcher);
  await client.put('k').value('1');
  await client.delete().key('k');
  assert.deepEqual(await next(1), ['Delete k=@3']);
  await watcher.cancel();
});

test('a watch resumes after a closed connection', LIMIT, async (t) => {
  const server = await start(t);
  const direct = connect(server);
  const between = await proxy(server);
  const watcher = await connect(between).watch().key('k').create();
  const next = events(watcher);
  await direct.put('k').value('before');
  assert.deepEqual(await next(1), ['Put k=before@2']);
  const lost = once(watcher, 'disconnected');
  between.disconnect();
  await lost;
  await direct.put('k').value('meanwhile');
  between.reconnect();
  assert.deepEqual(await next(1), ['Put k=meanwhile@3']);
  await direct.put('k').value('after');
  assert.deepEqual(await next(1), ['Put k=after@4']);
  await watcher.cancel();
});

test('a compacted revision', LIMIT, async (t) => {
  const client = connect(await start(t));
  for (let i = 0; i < 3; i++) {
    await client.put('k').value(i);
  }
  await client.kv.compact({ revision: '4' });
  const watcher = client.watch().key('k').startRevision('2').watcher();
  const [error] = await once(watcher, 'error');
  // The message contains the cancel reason, which is empty for a compaction (WA-40).
  assert.equal(error.message, 'Watcher canceled: ');
});
