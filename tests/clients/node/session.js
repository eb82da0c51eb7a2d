// Drives the pure JavaScript client node-zookeeper-client through its API: node session.js HOST:PORT, or --list.
// (The package's own mocha tests need no server, so they say nothing about one.)
// Prints one line per case: PASS or FAIL, name, milliseconds, message.
'use strict';
const assert = require('assert');
const crypto = require('crypto');
const cases = [];
const define = (name, run) => cases.push({ name, run });

if (process.argv[2] !== '--list') var zk = require('node-zookeeper-client');
const hosts = process.argv[2];
const bytes = (text) => Buffer.from(text);
const text = (buffer) => buffer.toString();
// Turns a call with a trailing callback into a promise of the array of its results.
const call = (f) => new Promise((resolve, reject) => f((error, ...results) => (error ? reject(error) : resolve(results))));

function connect(options) {
  return new Promise((resolve, reject) => {
    const client = zk.createClient(hosts, Object.assign({ sessionTimeout: 6000, spinDelay: 200, retries: 2 }, options));
    client.once('connected', () => resolve(client));
    setTimeout(() => reject(new Error('no connection within 8 s')), 8000).unref();
    client.connect();
  });
}

// A watcher to hand to the client, and the promise of its one event.
function watcher() {
  let fire;
  const event = new Promise((resolve, reject) => {
    fire = resolve;
    setTimeout(() => reject(new Error('no event within 4 s')), 4000).unref();
  });
  return [fire, event];
}

const base = '/node-' + process.pid;
let c;

define('create, exists, getData', async () => {
  await call((cb) => c.create(base, bytes('v0'), cb));
  const [stat] = await call((cb) => c.exists(base, cb));
  assert.equal(stat.version, 0);
  const [data] = await call((cb) => c.getData(base, cb));
  assert.equal(text(data), 'v0');
});
define('setData checks the version', async () => {
  const [stat] = await call((cb) => c.setData(base, bytes('v1'), 0, cb));
  assert.equal(stat.version, 1);
  await assert.rejects(call((cb) => c.setData(base, bytes('x'), 0, cb)), /BAD_VERSION/);
});
define('NODE_EXISTS', () => assert.rejects(call((cb) => c.create(base, cb)), /NODE_EXISTS/));
define('NO_NODE', () => assert.rejects(call((cb) => c.getData(base + '/none', cb)), /NO_NODE/));
define('sequential names count up', async () => {
  const { PERSISTENT_SEQUENTIAL, EPHEMERAL_SEQUENTIAL } = zk.CreateMode;
  const [first] = await call((cb) => c.create(base + '/s-', PERSISTENT_SEQUENTIAL, cb));
  const [second] = await call((cb) => c.create(base + '/s-', EPHEMERAL_SEQUENTIAL, cb));
  assert.equal(parseInt(second.slice(-10), 10) - parseInt(first.slice(-10), 10), 1);
});
define('getChildren', async () => {
  const [children, stat] = await call((cb) => c.getChildren(base, cb));
  assert.equal(children.length, 2);
  assert.equal(stat.numChildren, 2);
});
define('data watch fires once', async () => {
  const [watch, event] = watcher();
  await call((cb) => c.getData(base, watch, cb));
  await call((cb) => c.setData(base, bytes('w'), -1, cb));
  assert.equal((await event).getName(), 'NODE_DATA_CHANGED');
});
define('exists watch sees the creation', async () => {
  const [watch, event] = watcher();
  await call((cb) => c.exists(base + '/later', watch, cb));
  await call((cb) => c.create(base + '/later', cb));
  assert.equal((await event).getName(), 'NODE_CREATED');
});
define('child watch', async () => {
  const [watch, event] = watcher();
  await call((cb) => c.getChildren(base, watch, cb));
  await call((cb) => c.create(base + '/child', cb));
  assert.equal((await event).getName(), 'NODE_CHILDREN_CHANGED');
});
define('ephemeral is removed at close', async () => {
  const other = await connect();
  await call((cb) => other.create(base + '/e', zk.CreateMode.EPHEMERAL, cb));
  const [watch, event] = watcher();
  await call((cb) => c.exists(base + '/e', watch, cb));
  other.close();
  assert.equal((await event).getName(), 'NODE_DELETED');
});
define('NOT_EMPTY', () => assert.rejects(call((cb) => c.remove(base, cb)), /NOT_EMPTY/));
define('NO_CHILDREN_FOR_EPHEMERALS', async () => {
  await call((cb) => c.create(base + '/eph', zk.CreateMode.EPHEMERAL, cb));
  await assert.rejects(call((cb) => c.create(base + '/eph/x', cb)), /NO_CHILDREN_FOR_EPHEMERALS/);
});
define('transaction commits', async () => {
  const transaction = c.transaction().create(base + '/t1').setData(base, bytes('t'), -1);
  const [results] = await call((cb) => transaction.check(base + '/t1').remove(base + '/t1').commit(cb));
  assert.equal(results.length, 4);
});
define('transaction rolls back', async () => {
  await assert.rejects(call((cb) => c.transaction().create(base + '/t2').check(base + '/none').commit(cb)));
  const [stat] = await call((cb) => c.exists(base + '/t2', cb));
  assert.equal(stat, null);
});
define('digest ACL and addAuthInfo', async () => {
  const hash = crypto.createHash('sha1').update('bob:pw').digest('base64');
  const acl = [new zk.ACL(zk.Permission.ALL, new zk.Id('digest', 'bob:' + hash))];
  await call((cb) => c.create(base + '/acl', bytes('x'), acl, cb));
  await assert.rejects(call((cb) => c.getData(base + '/acl', cb)), /NO_AUTH/);
  c.addAuthInfo('digest', bytes('bob:pw'));
  const [data] = await call((cb) => c.getData(base + '/acl', cb));
  assert.equal(text(data), 'x');
});
define('getACL and setACL', async () => {
  await call((cb) => c.create(base + '/acl2', cb));
  await call((cb) => c.setACL(base + '/acl2', zk.ACL.READ_ACL_UNSAFE, -1, cb));
  const [acls, stat] = await call((cb) => c.getACL(base + '/acl2', cb));
  assert.equal(acls[0].permission, zk.Permission.READ);
  assert.equal(stat.aversion, 1);
});
define('mkdirp and listSubTreeBFS', async () => {
  await call((cb) => c.mkdirp(base + '/a/b/c', cb));
  const [paths] = await call((cb) => c.listSubTreeBFS(base + '/a', cb));
  assert.deepEqual(paths.slice(0, 2), [base + '/a', base + '/a/b']);
});
define('removeRecursive', async () => {
  await call((cb) => c.mkdirp(base + '/f', cb));
  await call((cb) => c.removeRecursive(base + '/f', cb));
  const [stat] = await call((cb) => c.exists(base + '/f', cb));
  assert.equal(stat, null);
});
define('session is taken up again', async () => {
  const first = await connect();
  await call((cb) => first.create(base + '/kept', zk.CreateMode.EPHEMERAL, cb));
  const id = first.getSessionId(), password = first.getSessionPassword();
  assert.equal(id.length, 8);
  assert.equal(password.length, 16);
  first.connectionManager.socket.destroy();
  await new Promise((resolve) => first.once('connected', resolve));
  assert.deepEqual(first.getSessionId(), id);
  const [stat] = await call((cb) => first.exists(base + '/kept', cb));
  assert.deepEqual(stat.ephemeralOwner, id);
  first.close();
});

async function main() {
  if (process.argv[2] === '--list') return cases.forEach((one) => console.log(one.name));
  c = await connect();
  for (const one of cases) {
    const start = Date.now();
    let wrong = '';
    try { await one.run(); } catch (error) { wrong = String(error.message || error).split('\n')[0]; }
    console.log([wrong ? 'FAIL' : 'PASS', one.name, Date.now() - start, wrong].join('\t'));
  }
  c.close();
  setTimeout(() => process.exit(0), 200);
}
main().catch((error) => { console.log('FAIL\tsession\t0\t' + error.message); process.exit(1); });
