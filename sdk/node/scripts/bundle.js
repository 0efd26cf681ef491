'use strict';
// Puts the servers into the package: those that the variables name, or the release builds of this repository.

const fs = require('node:fs');
const path = require('node:path');

const root = path.join(__dirname, '..');

function bundle(name, variable, required) {
  const source = process.env[variable] || path.join(root, '../../target/release', name);
  if (!fs.existsSync(source)) {
    if (!required) return;
    throw new Error(`${source} is missing: build it with cargo build --release, or set ${variable}`);
  }
  const target = path.join(root, 'bin', name);
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.copyFileSync(source, target);
  fs.chmodSync(target, 0o755);
}

bundle('revstore', 'REVSTORE_BIN', true);
bundle('revstore-apiserver', 'REVSTORE_APISERVER_BIN', false);
