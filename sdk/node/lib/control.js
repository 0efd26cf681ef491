'use strict';

const http = require('node:http');
const readline = require('node:readline');

const { fromAnswer, toDuration, toKey, toRequest } = require('./fields');

/** A request that the server refused, with the code of gRPC. */
class ControlError extends Error {
  constructor(method, code, text) {
    super(`${method}: ${text} (code ${code})`);
    this.name = 'ControlError';
    this.method = method;
    this.code = code;
    this.text = text;
  }
}

Object.assign(ControlError, {
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
});

/** A client of the control port with a URL. Durations are milliseconds, or texts such as 1m30s. */
class Control {
  constructor(url) {
    this.url = url;
  }

  setClock(mode) {
    return this.call('ClockSet', { mode });
  }
  advance(by) {
    return this.call('ClockAdvance', { by: toDuration(by) });
  }
  advanceToNext() {
    return this.call('ClockAdvance', { toNext: true });
  }
  async pending() {
    return (await this.call('ClockPending')).pending;
  }

  async addFault({ prefix, range, delay, delayWall, ...rule }) {
    const { id } = await this.call('FaultAdd', {
      ...rule,
      prefix: prefix === undefined ? undefined : toKey(prefix),
      range: range && { key: toKey(range[0]), range_end: toKey(range[1]) },
      delay: delay === undefined ? undefined : { time: toDuration(delay), wall: Boolean(delayWall) },
      http: rule.http && toRequest(rule.http),
    });
    return id;
  }
  async faults() {
    return (await this.call('FaultList')).faults;
  }
  async clearFaults(id) {
    return (await this.call('FaultClear', { id })).cleared;
  }

  async holdWatches(id) {
    return (await this.call('WatchHold', { id })).watches;
  }
  async releaseWatches(id) {
    return (await this.call('WatchRelease', { id })).watches;
  }
  async cutWatches(id) {
    return (await this.call('WatchCut', { id })).watches;
  }
  async cancelWatchesCompacted(id) {
    return (await this.call('WatchCancelCompacted', { id })).watches;
  }
  async bookmarkWatches(id) {
    return (await this.call('WatchBookmark', { id })).watches;
  }
  async watches() {
    return (await this.call('Watches')).watches;
  }
  async connections() {
    return (await this.call('Connections')).connections;
  }

  checkpoint(name) {
    return this.call('StoreCheckpoint', { name });
  }
  restore(name, { bumpRevision, markCompacted } = {}) {
    return this.call('StoreRestore', { name, bumpRevision, markCompacted });
  }
  reset({ keepRevision } = {}) {
    return this.call('StoreReset', { keepRevision });
  }
  jump(revision) {
    return this.call('StoreJump', { revision });
  }
  compact(revision) {
    return this.call('StoreCompact', { revision });
  }
  fork() {
    return this.call('StoreFork');
  }
  async forks() {
    return (await this.call('StoreForks')).forks;
  }
  drop(id) {
    return this.call('StoreDrop', { id });
  }
  /** Returns the store as text. */
  async dump() {
    return text(await this.#post('StoreDump', '{}'));
  }
  async load(dump) {
    return parse(await this.#post('StoreLoad', dump));
  }
  async importSnapshot(snapshot) {
    return parse(await this.#post('StoreImport', snapshot));
  }

  async leases() {
    const { leases } = await this.call('Leases');
    // The number may be too large for this language; the id is the same in hexadecimal.
    return leases.map(({ number, ...lease }) => lease);
  }
  expire(lease) {
    return this.call('Expire', { id: typeof lease === 'bigint' ? lease.toString(16) : lease });
  }
  raiseAlarm(name) {
    return this.call('Alarm', { action: 'raise', name });
  }
  clearAlarm(name) {
    return this.call('Alarm', { action: 'clear', name });
  }
  newTerm() {
    return this.call('TermNew');
  }

  /** Yields the records of the journal, with `follow` until the loop ends. */
  async *journal(filter = {}) {
    const answer = await this.#post('JournalRead', JSON.stringify(toRequest(filter)));
    try {
      for await (const line of readline.createInterface({ input: answer })) yield fromAnswer(JSON.parse(line));
    } finally {
      answer.destroy();
    }
  }

  /** Returns the journal with the requests as JSON, one record in each line, for `revstore ctl journal replay`. */
  async journalLines() {
    return text(await this.#post('JournalRead', '{"requests": true}'));
  }

  waitRevision(minRevision, timeout) {
    return this.#wait({ minRevision }, timeout);
  }
  waitKey(key, timeout) {
    return this.#wait({ key: toKey(key) }, timeout);
  }
  waitWatchers(watchers, timeout) {
    return this.#wait({ watchers }, timeout);
  }

  /** Sends a request of any method and returns the answer. */
  async call(method, request = {}) {
    return parse(await this.#post(method, JSON.stringify(toRequest(request))));
  }

  #wait(condition, timeout) {
    return this.call('Wait', { ...condition, timeout: timeout === undefined ? undefined : toDuration(timeout) });
  }

  /** Sends a body and returns the answer as a stream. */
  async #post(method, body) {
    const answer = await new Promise((resolve, reject) => {
      const options = { method: 'POST', headers: { 'content-length': Buffer.byteLength(body) }, agent: false };
      http.request(`${this.url}/control/v1/${method}`, options, resolve).on('error', reject).end(body);
    });
    if (answer.statusCode === 200) return answer;
    const refused = await text(answer);
    let fields = { code: 2, error: `status ${answer.statusCode}` };
    try {
      fields = JSON.parse(refused);
    } catch {
      // The status says enough.
    }
    throw new ControlError(method, fields.code, fields.error);
  }
}

async function text(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function parse(answer) {
  return fromAnswer(JSON.parse(await text(answer)));
}

/** Stands for the control of a server without one: each use throws. */
const noControl = new Proxy(Object.freeze({}), {
  get(_, name) {
    // Asked by promises and by printing, which are no uses.
    if (typeof name === 'symbol' || name === 'then' || name === 'toJSON') return undefined;
    throw new Error(`control.${name}: the server was started without control`);
  },
});

module.exports = { Control, ControlError, noControl };
