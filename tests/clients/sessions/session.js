// The golden session of node-zookeeper-client. Usage: node session.js HOST:PORT
'use strict';
const assert = require('assert');
const zk = require('node-zookeeper-client');
const client = zk.createClient(process.argv[2], { sessionTimeout: 10000, spinDelay: 100 });
const call = (f) => new Promise((resolve, reject) => f((error, ...results) => (error ? reject(error) : resolve(results))));
const event = (start) => new Promise((resolve) => start(resolve));
const { EPHEMERAL, PERSISTENT_SEQUENTIAL, EPHEMERAL_SEQUENTIAL } = zk.CreateMode;

async function main() {
  await new Promise((resolve) => { client.once('connected', resolve); client.connect(); });
  await call((cb) => client.create('/g', Buffer.from('one'), cb));
  await call((cb) => client.create('/g/e', EPHEMERAL, cb));
  await call((cb) => client.create('/g/s-', Buffer.from('x'), PERSISTENT_SEQUENTIAL, cb));
  await call((cb) => client.create('/g/es-', EPHEMERAL_SEQUENTIAL, cb));
  await assert.rejects(call((cb) => client.create('/g', cb)), /NODE_EXISTS/);
  await call((cb) => client.getData('/g', cb));
  await assert.rejects(call((cb) => client.getData('/none', cb)), /NO_NODE/);
  await call((cb) => client.exists('/g', cb));
  await call((cb) => client.exists('/none', cb));
  await call((cb) => client.getChildren('/g', cb));
  const changed = event((fire) => client.getData('/g', fire, () => {}));
  const children = event((fire) => client.getChildren('/g', fire, () => {}));
  const created = event((fire) => client.exists('/g/later', fire, () => {}));
  await call((cb) => client.setData('/g', Buffer.from('two'), cb));
  await call((cb) => client.create('/g/later', cb));
  await Promise.all([changed, children, created]);
  await assert.rejects(call((cb) => client.setData('/g', Buffer.from('x'), 0, cb)), /BAD_VERSION/);
  const good = client.transaction().create('/g/t', Buffer.from('t')).setData('/g/t', Buffer.from('u'));
  await call((cb) => good.check('/g/t', 1).remove('/g/t').commit(cb));
  await assert.rejects(call((cb) => client.transaction().create('/g/u').check('/g', 99).commit(cb)));
  await call((cb) => client.getACL('/g', cb));
  client.addAuthInfo('digest', Buffer.from('bob:pw'));
  await call((cb) => client.setACL('/g/s-0000000001', zk.ACL.CREATOR_ALL_ACL, -1, cb));
  await assert.rejects(call((cb) => client.remove('/g', cb)), /NOT_EMPTY/);
  client.getData('/g', () => {}, () => {});
  const again = new Promise((resolve) => client.once('connected', resolve));
  await call((cb) => client.exists('/drop', cb));
  await again;
  await call((cb) => client.getData('/g/e', cb));
  for (const child of ['s-0000000001', 'e', 'es-0000000002', 'later']) await call((cb) => client.remove('/g/' + child, cb));
  await call((cb) => client.remove('/g', cb));
  client.close();
}
main().then(() => setTimeout(() => process.exit(0), 300), (error) => { console.error(error); process.exit(1); });
