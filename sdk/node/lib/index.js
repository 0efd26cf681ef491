'use strict';

const { Control, ControlError } = require('./control');
const { StartError } = require('./process');
const { Server, ApiServer } = require('./server');
const { withRevstore, withFork, withApiServer } = require('./tests');

module.exports = { ApiServer, Control, ControlError, Server, StartError, withApiServer, withFork, withRevstore };
