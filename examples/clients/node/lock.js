// The same lock with node-zookeeper-client. Enter gives it away.
//
//   npm install --no-save node-zookeeper-client@1.1.3
//   node examples/clients/node/lock.js 127.0.0.1:2181 /locks/demo
'use strict';

const { randomUUID } = require('crypto');
const { promisify } = require('util');
const zookeeper = require('node-zookeeper-client');

const [servers, path] = process.argv.slice(2);
const client = zookeeper.createClient(servers, { sessionTimeout: 10000 });
const call = (name, ...rest) => promisify(client[name].bind(client))(...rest);
const number = (name) => parseInt(name.slice(-10), 10);
const isCode = (error, code) => error.getCode && error.getCode() === zookeeper.Exception[code];
let held = false;

// Queues; after a lost connection, it finds its znode by its name if it was created.
async function enter() {
  const prefix = `_c_${randomUUID()}-lock-`; // Curator's names
  try {
    const mode = zookeeper.CreateMode.EPHEMERAL_SEQUENTIAL;
    return (await call('create', `${path}/${prefix}`, null, mode)).slice(path.length + 1);
  } catch (error) {
    if (!isCode(error, 'CONNECTION_LOSS')) throw error;
    const own = (await call('getChildren', path)).find((name) => name.startsWith(prefix));
    if (!own) throw error;
    return own;
  }
}

// The nearest before us, if any.
async function before(own) {
  const names = (await call('getChildren', path)).filter((name) => number(name) < number(own));
  return names.sort((one, other) => number(other) - number(one))[0];
}

// Waits until something happens to a znode, or it is gone.
function change(node) {
  return new Promise((resolve, reject) => {
    client.getData(node, resolve, (error) => {
      if (error && isCode(error, 'NO_NODE')) resolve();
      else if (error) reject(error);
    });
  });
}

async function main() {
  await call('mkdirp', path);
  const own = await enter();
  for (let name = await before(own); name; name = await before(own)) await change(`${path}/${name}`);
  held = true;
  const node = `${path}/${own}`;
  // The fencing token: whatever the lock protects should refuse smaller ones.
  const token = (await call('exists', node)).czxid.readBigInt64BE();
  console.log(`HELD ${node} ${token}`);
  await new Promise((resolve) => process.stdin.once('data', resolve).once('end', resolve));
  process.stdin.destroy();
  await call('remove', node, -1);
  held = false;
  console.log(`RELEASED ${node} ${token}`);
  client.close();
}

client.on('disconnected', () => held && process.exit(75)); // perhaps nobody else has it yet: stop now
client.once('connected', () => main().catch((error) => {
  console.error(String(error));
  process.exit(1);
}));
client.connect();
