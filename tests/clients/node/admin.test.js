import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EtcdAuthenticationFailedError, EtcdPermissionDeniedError } from 'etcd3';

import { connect, LIMIT, start } from './server.js';

test('status, members, hash', LIMIT, async (t) => {
  const server = await start(t);
  const client = connect(server);
  const status = await client.maintenance.status();
  assert.match(status.version, /^3\./);
  assert.equal(status.leader, status.header.member_id);
  const { members } = await client.cluster.memberList({});
  assert.deepEqual(members.map(({ name, clientURLs }) => [name, clientURLs]), [
    ['default', [`http://${server.host}`]],
  ]);
  await client.maintenance.hash();
  await client.maintenance.defragment();
});

test('users and roles', LIMIT, async (t) => {
  const server = await start(t, '--bcrypt-cost=4');
  const open = connect(server);
  await open.put('k').value('v');
  await open.role('root').create();
  await open.user('root').create('secret');
  await open.user('root').addRole('root');
  const reader = open.role('reader');
  await reader.create();
  await reader.grant({ permission: 'Read', range: open.range({ prefix: 'k' }) });
  await open.user('alice').create('wonder');
  await open.user('alice').addRole('reader');
  await open.auth.authEnable();

  const as = (username, password) => connect(server, { auth: { username, password } });
  const root = as('root', 'secret');
  assert.deepEqual((await root.getUsers()).map((user) => user.name), ['alice', 'root']);
  assert.deepEqual((await root.user('alice').roles()).map((role) => role.name), ['reader']);
  const [granted] = await root.role('reader').permissions();
  assert.equal(granted.permission, 'Read');
  assert.equal(granted.range.start.toString(), 'k');

  const alice = as('alice', 'wonder');
  assert.equal(await alice.get('k').string(), 'v');
  await assert.rejects(alice.put('k').value('w').exec(), EtcdPermissionDeniedError);
  await assert.rejects(alice.get('other').string(), EtcdPermissionDeniedError);
  await assert.rejects(as('alice', 'wrong').get('k').string(), EtcdAuthenticationFailedError);

  await root.auth.authDisable();
  assert.equal(await open.get('k').string(), 'v');
});
