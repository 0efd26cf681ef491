'use strict';
// The fields of requests and answers, in the forms of this language and of JSON.

const SECONDS = { h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6, 'µs': 1e-6, ns: 1e-9 };
const TIMES = new Set(['time', 'now', 'due', 'ttl', 'remaining', 'since', 'duration']);
const KEYS = new Set(['key', 'rangeEnd']);

/** Returns a duration as text: a number of milliseconds, or a text such as 1m30s, which stays. */
function toDuration(duration) {
  return typeof duration === 'string' ? duration : `${Math.round(duration * 1e6)}ns`;
}

/** Returns the milliseconds of a text. */
function fromDuration(text) {
  let seconds = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)/g)) {
    seconds += Number(number) * SECONDS[unit];
  }
  return Math.round(seconds * 1e9) / 1e6;
}

/** Returns a key in base64. */
function toKey(key) {
  return Buffer.from(key).toString('base64');
}

/** Returns a request with the names of JSON. */
function toRequest(fields) {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries.map(([name, value]) => [name.replace(/[A-Z]/g, (it) => `_${it.toLowerCase()}`), value]));
}

/** Returns an answer with the names of this language, times in milliseconds and keys as buffers. */
function fromAnswer(value) {
  if (Array.isArray(value)) return value.map(fromAnswer);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value).map(([snake, field]) => {
      const name = snake.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
      if (typeof field === 'string' && TIMES.has(name)) return [name, fromDuration(field)];
      if (typeof field === 'string' && KEYS.has(name)) return [name, Buffer.from(field, 'base64')];
      return [name, fromAnswer(field)];
    }),
  );
}

module.exports = { fromAnswer, fromDuration, toDuration, toKey, toRequest };
