'use strict';
// Servers that are not found or do not start, and what tests leave behind.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { afterEach, beforeEach, test } = require('node:test');

const { Server, StartError, withRevstore } = require('..');
const { fromDuration, toDuration } = require('../lib/fields');
const { find } = require('../lib/process');

const variables = ['PATH', 'REVSTORE_BIN', 'REVSTORE_ARTIFACTS'];
let saved;
let directory;
beforeEach(() => {
  saved = variables.map((name) => process.env[name]);
  directory = fs.mkdtempSync(path.join(os.tmpdir(), 'revstore-test-'));
});
afterEach(() => {
  variables.forEach((name, index) => {
    if (saved[index] === undefined) delete process.env[name];
    else process.env[name] = saved[index];
  });
  fs.rmSync(directory, { recursive: true });
});

/** Writes a program. */
function script(text, name = 'revstore') {
  const file = path.join(directory, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o700 });
  return file;
}

test('a missing binary is an error that names all places', () => {
  delete process.env.REVSTORE_BIN;
  process.env.PATH = '/nowhere:/else';
  const look = (explicit) => () => find('revstore', 'REVSTORE_BIN', explicit, '/none/bin/revstore');
  assert.throws(look(), (error) => {
    assert.ok(error instanceof StartError);
    for (const part of ['option binary', 'REVSTORE_BIN', '(/none/bin/revstore)', 'PATH (/nowhere, /else)']) {
      assert.ok(error.message.includes(part), error.message);
    }
    return true;
  });
  assert.throws(look('/none'), /binary: \/none is not an executable file/);
  process.env.REVSTORE_BIN = '/etc/passwd';
  assert.throws(look(), /REVSTORE_BIN: \/etc\/passwd is not/);
});

test('the explicit path is first, then the variable, then the package, then PATH', () => {
  const [explicit, variable, packed, inPath] = ['explicit', 'variable', 'packed', 'path/revstore'].map((name) => script('', name));
  process.env.PATH = path.dirname(inPath);
  process.env.REVSTORE_BIN = variable;
  assert.equal(find('revstore', 'REVSTORE_BIN', explicit, packed), explicit);
  assert.equal(find('revstore', 'REVSTORE_BIN', undefined, packed), variable);
  delete process.env.REVSTORE_BIN;
  assert.equal(find('revstore', 'REVSTORE_BIN', undefined, packed), packed);
  fs.rmSync(packed);
  assert.equal(find('revstore', 'REVSTORE_BIN', undefined, packed), inPath);
});

test('a start that fails shows the output', async () => {
  await assert.rejects(Server.start({ flags: ['--nonsense'] }), /ended before it was ready, with status 2:[^]*-nonsense/);
});

test('a file that cannot be run is an error', async () => {
  const binary = script('');
  fs.writeFileSync(binary, '#!/none\n');
  await assert.rejects(Server.start({ binary }), { name: 'StartError' });
});

test('a server that is never ready is killed', async () => {
  const binary = script('echo started; sleep 20');
  await assert.rejects(Server.start({ binary, startTimeout: 300 }), /was not ready within 300 ms:\nstarted/);
});

test('the server ends with a process that is killed, and does not keep one from its end', () => {
  for (const [end, status] of [['process.kill(process.pid, "SIGKILL")', null], ['', 0]]) {
    const program = `
      const { Process, find } = require(${JSON.stringify(path.join(__dirname, '../lib/process'))});
      const flags = ['client', 'peer'].map((kind) => '--listen-' + kind + '-urls=http://127.0.0.1:0');
      flags.push('--advertise-client-urls=http://127.0.0.1:0');
      Process.start('revstore', find('revstore', 'REVSTORE_BIN'), flags, 30000).then((server) => {
        require('node:fs').writeSync(1, String(server.pid));
        ${end}
      });`;
    const ended = spawnSync(process.execPath, ['-e', program], { timeout: 60_000 });
    assert.equal(ended.status, status, `${ended.stderr}`);
    assert.match(`${ended.stdout}`, /^\d+$/);
    // Ends when no process has the number any more.
    const gone = spawnSync('sh', ['-c', `while kill -0 ${ended.stdout} 2>/dev/null; do :; done`], { timeout: 60_000 });
    assert.equal(gone.status, 0);
  }
});

test('a failed test leaves its files', async (t) => {
  process.env.REVSTORE_ARTIFACTS = directory;
  const printed = t.mock.method(console, 'error', () => {});
  const failing = withRevstore(async ({ endpoint }) => {
    await fetch(`${endpoint}/v3/kv/put`, { method: 'POST', body: '{"key": "a2V5", "value": "dg=="}' });
    throw new Error('as expected');
  });
  await assert.rejects(failing(t), /as expected/);
  const [name] = fs.readdirSync(directory);
  assert.match(name, /^a_failed_test_leaves_its_files-/);
  assert.ok(printed.mock.calls[0].arguments[0].includes(path.join(directory, name)));
  const read = (file) => fs.readFileSync(path.join(directory, name, file), 'utf8');
  assert.match(read('server.log'), /ready to serve/);
  assert.match(read('journal.jsonl'), /KV\/Put.*"request":\{"body":"CgNrZXkSAXY="/);
  assert.ok(read('dump.txt').includes('{"put":{"key":"key","value":"v"'));
});

test('durations are those of Go', () => {
  const texts = { '1m30s': 90_000, '1h0m0.5s': 3_600_500, '250ms': 250, '2µs': 0.002, '0s': 0 };
  for (const [text, milliseconds] of Object.entries(texts)) assert.equal(fromDuration(text), milliseconds);
  assert.deepEqual([toDuration(1.5), toDuration('1m30s')], ['1500000ns', '1m30s']);
});
