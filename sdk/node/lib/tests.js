'use strict';
// Functions of tests, for node:test, jest and other runners whose tests are functions.

const { ApiServer, Server } = require('./server');

/** Returns a function for a test: it runs `body` with a server, saves the server's files if `body` fails, and stops it. */
function withRunning(start, body) {
  // Without parameters, because runners wait for a callback if there are any.
  return async (...context) => {
    const server = await start();
    try {
      return await body(server, ...context);
    } catch (error) {
      const name = context[0]?.name ?? globalThis.expect?.getState?.().currentTestName ?? body.name;
      const directory = await server.save(name || 'test').catch((reason) => reason);
      console.error(`revstore: the store, the journal and the log are in ${directory}`);
      throw error;
    } finally {
      await server.close();
    }
  };
}

/** Returns a function for a test with a server of its own. Options can be given before `body`. */
function withRevstore(...given) {
  const body = given.pop();
  return withRunning(() => Server.start(given[0]), body);
}

/** Returns a function for a test with a fork of a server, or of what `parent` returns when the test runs. */
function withFork(parent, body) {
  return withRunning(async () => (typeof parent === 'function' ? await parent() : parent).fork(), body);
}

/** Returns a function for a test with a Kubernetes API server of its own. */
function withApiServer(...given) {
  const body = given.pop();
  return withRunning(() => ApiServer.start(given[0]), body);
}

module.exports = { withApiServer, withFork, withRevstore };
