// The console in the states that an operator meets: looked at, judged by axe-core, and left alone by its own refreshes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Browser } from "./browser.mjs";
import { one, three } from "./servers.mjs";
import { Client } from "./zookeeper.mjs";

const [work, only] = process.argv.slice(2);
const axe = readFileSync(join(work, "npm/node_modules/axe-core/axe.min.js"), "utf8");
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const LOOKS = { desktop: { width: 1280 }, phone: { width: 390, height: 844 }, dark: { width: 1280, dark: true }, "phone-dark": { width: 390, height: 844, dark: true } };

const started = [];
const begun = Date.now();
const said = text => console.log(((Date.now() - begun) / 1000).toFixed(1).padStart(5) + " s  " + text);
const keep = thing => { started.push(thing); return thing; };
const browser = keep(await Browser.start());

// No error was reported, axe-core finds nothing, nothing is wider than the screen, no cell repeats its head; and a screenshot.
async function judge(page, name) {
  await page.screenshot(join(work, name + ".png"));
  await page.run(axe + "; true");
  const found = await page.run(`axe.run(document).then(found => found.violations.map(one => one.id + ": " + one.help + " (" + one.nodes.slice(0, 3).map(node => node.html + " " + node.failureSummary).join("; ") + ")"))`);
  assert.deepEqual(found, [], name + ": axe-core");
  assert.deepEqual(page.errors, [], name + ": errors of the page");
  const width = await page.run("[document.documentElement.scrollWidth, innerWidth]");
  assert.ok(width[0] <= width[1], name + ": wider than the screen: " + width);
  // On a small screen each cell has its head in front.
  const twice = await page.run(`[...document.querySelectorAll("table.rows td[data-head]:not([data-head=''])")].filter(cell => getComputedStyle(cell).display === "flex")
    .map(cell => cell.innerText.trim().toLowerCase() + " of " + cell.dataset.head.toLowerCase()).filter(said => said.startsWith(said.split(" of ").at(-1)))`);
  assert.deepEqual(twice, [], name + ": cells that repeat their heads");
  said(name);
}

async function judgeAll(url, name, ready, looks = Object.keys(LOOKS)) {
  for (const look of looks) {
    const page = await browser.open(url, LOOKS[look]);
    if (ready) await page.until(ready);
    // Courses of figures have several points.
    if (name.startsWith("overview")) await page.looks(4);
    await judge(page, name + "-" + look);
    await page.close();
  }
}

const text = wanted => `document.body.innerText.includes(${JSON.stringify(wanted)})`;

const tests = {
  async empty() {
    const server = keep(await one());
    await judgeAll(server.admin + "/#locks", "empty", text("No locks"), ["desktop", "dark"]);
    await judgeAll(server.admin + "/#overview", "overview-alone", text("Standalone"), ["desktop", "phone"]);
    await judgeAll(server.admin + "/#tree", "tree-empty", text("zookeeper"), ["desktop"]);
    await judgeAll(server.admin + "/#watches", "watches-empty", text("No watches"), ["desktop"]);
    await server.end();
  },

  async waiters(server) {
    const clients = [];
    for (let at = 0; at <= 200; at += 20) clients.push(...await Promise.all(Array.from({ length: at ? 20 : 1 }, () => Client.open(server.address))));
    await clients[0].createAll("/locks/import");
    let before = null;
    for (const [at, client] of clients.entries()) before = await client.enter("/locks/import", "worker-" + String(at).padStart(3, "0"), before);
    await judgeAll(server.admin + "/#locks", "waiters", text("Show all 201"));
    const page = await browser.open(server.admin + "/#locks", LOOKS.desktop);
    const rows = () => page.run("document.querySelectorAll('tbody tr').length");
    assert.equal(await rows(), 11, "the holder and ten waiters");
    await page.run("document.querySelector('[data-act=all]').click()");
    assert.equal(await rows(), 201);
    assert.match(await page.run("location.hash"), /all=/);
    await stays(page);
    await page.close();
    // What the URL says is there when it is opened again; a filter finds one of them.
    const again = await browser.open(server.admin + "/#locks?q=worker-150", LOOKS.desktop);
    await again.until("document.querySelector('#filter').value === 'worker-150'");
    assert.equal(await again.run("document.querySelectorAll('.lock').length"), 1);
    await again.close();
    await judgeAll(server.admin + "/#sessions", "sessions", text("201 sessions"), ["desktop", "phone"]);
    await judgeAll(server.admin + "/#watches", "watches", text("200 watches"), ["desktop", "phone"]);
    await Promise.all(clients.map(client => client.close()));
  },

  async deadlock(server) {
    const [a, b] = [await Client.open(server.address), await Client.open(server.address)];
    for (const path of ["/accounts/alice", "/accounts/bob"]) await a.createAll(path);
    const first = await a.enter("/accounts/alice", "billing at 10.0.0.7");
    const second = await b.enter("/accounts/bob", "refunds at 10.0.0.8");
    await a.enter("/accounts/bob", "billing at 10.0.0.7", second);
    await b.enter("/accounts/alice", "refunds at 10.0.0.8", first);
    await sleep(2_100);
    await judgeAll(server.admin + "/#locks", "deadlock", text("sessions wait for each other"));
    await breaks(server);
    await Promise.all([a.close(), b.close()]);
  },

  async tree(server) {
    const client = await Client.open(server.address);
    for (const path of ["/app/config", "/app/services/web", "/app/services/db", "/app/empty"]) await client.createAll(path);
    await client.create("/app/config/settings", JSON.stringify({ pool: { size: 8, timeout: "2s" }, hosts: ["a", "b"] }));
    await client.create("/app/config/note", "a text of two lines\nand <b>no HTML</b>\n");
    await client.create("/app/config/bytes", Buffer.from(Array.from({ length: 70 }, (_, at) => at * 5 % 256)));
    await client.create("/app/config/secret", "not for everyone", 0, ["digest", "ann:QhC0sPVVcqUzjOAMYsMoXqpaOx4=", 31]);
    for (let at = 0; at < 150; at++) await client.create("/app/services/web/node-" + String(at).padStart(4, "0"), "10.0.0." + at);
    const url = server.admin + "/#tree?path=" + encodeURIComponent("/app/config/settings");
    await judgeAll(url, "tree", text("\"timeout\": \"2s\""));
    const page = await browser.open(url, LOOKS.desktop);
    for (const [name, wanted] of [["note", "and <b>no HTML</b>"], ["bytes", "00000000  00 05 0a"], ["secret", "does not let everyone read its data"]]) {
      await page.run(`location.hash = "tree?path=/app/config/${name}"`);
      await page.until(text(wanted));
    }
    await judge(page, "tree-secret");
    await page.run("location.hash = 'tree?path=/app/services/web/node-0042'");
    await page.until(text("10.0.0.42"));
    await page.until("document.querySelector('[data-act=page]')");
    await page.run("document.querySelector('[data-act=page]').click()");
    await page.until(text("node-0149"));
    await keepsName(page, "/app/services/web/node-0042");
    await page.close();
    await client.close();
  },

  async failover() {
    const ensemble = keep(await three());
    const leader = ensemble.members.find(one => one.mode === "leader");
    const others = ensemble.members.filter(one => one !== leader);
    const clients = await Promise.all(others.concat(others).map(one => Client.open(one.address)));
    await clients[0].createAll("/locks/leader");
    const nodes = [];
    for (const [at, client] of clients.entries()) nodes.push(await client.enter("/locks/leader", "app-" + at, nodes.at(-1)));
    const turn = async (at, ms) => {
      await sleep(ms);
      await clients[at % 4].delete(nodes[at]);
      nodes.push(await clients[at % 4].enter("/locks/leader", "app-" + at % 4, nodes.at(-1)));
    };
    for (let at = 0; at < 4; at++) await turn(at, 600 + 300 * at);
    await ensemble.kill(leader.id);
    await sleep(400);
    // The sessions of the other servers go on; requests that were on their way may be lost with the leader.
    for (let at = 4; at < 8; at++) await turn(at, 900);
    const url = others[0].admin + "/#locks?line=" + encodeURIComponent("/locks/leader ");
    await judgeAll(url, "failover", text("Hand-overs and elections"));
    await judgeAll(others[0].admin + "/#overview", "overview", text("Members"), ["desktop", "phone-dark"]);
    const page = await browser.open(url, LOOKS.desktop);
    const words = await page.run("document.querySelector('.history svg').getAttribute('aria-label')");
    assert.match(words, /9 holds, 2 leaders|9 holds, [2-4] leaders/);
    await page.close();
    await Promise.all(clients.map(client => client.close()));
    await ensemble.end();
  },
};

// Of a long list that is scrolled, filtered and partly selected nothing moves while it is looked at again ten times.
async function stays(page) {
  await page.run("document.querySelector('#filter').value = '/locks/import'; document.querySelector('#filter').dispatchEvent(new Event('input', { bubbles: true })); true");
  await page.looks(1);
  await page.run(`{
    scrollTo(0, 3000);
    const row = document.querySelectorAll('tbody tr')[120];
    globalThis.chosen = row.querySelector('td:nth-child(7) code');
    getSelection().selectAllChildren(chosen);
    row.querySelector('[data-act=copy]').focus({ preventScroll: true });
  }`);
  const now = () => page.run("JSON.stringify([getSelection().toString(), scrollY, document.activeElement.dataset.arg, document.querySelector('#filter').value, chosen.isConnected, document.querySelectorAll('tbody tr').length])");
  const before = await now();
  assert.match(before, /__lock__\d{10}",3000,"/);
  await page.looks(10);
  assert.equal(await now(), before);
  assert.deepEqual(page.errors, []);
  said("ten refreshes moved nothing in the queue");
}

async function keepsName(page, path) {
  await page.run(`{
    globalThis.picked = [...document.querySelectorAll('.pick')].find(one => one.getAttribute('href').endsWith(encodeURIComponent(${JSON.stringify(path)})));
    getSelection().selectAllChildren(picked);
    document.querySelector('.nodes').scrollIntoView();
  }`);
  // The clipboard itself is not looked at: what the page says it has copied is.
  await page.run(`[...document.querySelectorAll('[data-act=copy]')].find(one => one.dataset.arg === ${JSON.stringify(path)}).click()`);
  await page.until(`document.querySelector('#said').textContent === ${JSON.stringify("Copied " + path)}`);
  await page.run("getSelection().selectAllChildren(picked)");
  const now = () => page.run("JSON.stringify([getSelection().toString(), scrollY, picked.isConnected, location.hash])");
  const before = await now();
  assert.match(before, new RegExp(path.split("/").at(-1)));
  await page.looks(10);
  assert.equal(await now(), before);
  assert.deepEqual(page.errors, []);
  said("a copied name of a znode stayed selected for ten refreshes");
}

// By the keyboard alone: the dialog says what it is about, holds the focus, and does it.
async function breaks(server) {
  const page = await browser.open(server.admin + "/#locks", LOOKS.desktop);
  await page.until(text("sessions wait for each other"));
  await page.run("document.querySelector('[data-act=break]').focus()");
  await page.key("Enter", "Enter", 13);
  await page.until("document.querySelector('dialog').open");
  assert.match(await page.run("document.querySelector('dialog').innerText"), /Take the lock away\?/);
  assert.equal(await page.run("document.activeElement.textContent"), "Cancel");
  await judge(page, "break-dialog");
  await page.key("Escape", "Escape", 27);
  await page.until("!document.querySelector('dialog').open");
  assert.equal(await page.run("document.activeElement.dataset.act"), "break", "the focus is back");
  await page.key("Enter", "Enter", 13);
  await page.until("document.querySelector('dialog').open");
  await page.run("[...document.querySelectorAll('dialog button')].find(one => one.textContent === 'Break the lock').focus()");
  await page.key("Enter", "Enter", 13);
  await page.until(`!${text("sessions wait for each other")}`);
  assert.deepEqual(page.errors, []);
  await page.close();
  said("a deadlock was broken by the keyboard");
}

try {
  const chosen = Object.keys(tests).filter(name => !only || name === only);
  const onOne = ["waiters", "deadlock", "tree"].filter(name => chosen.includes(name));
  const together = async () => {
    const server = keep(await one("--set", "maxClientCnxns=0"));
    for (const name of onOne) await tests[name](server);
    await server.end();
  };
  // The failover waits for the most part.
  const others = chosen.filter(name => !onOne.includes(name)).map(name => tests[name]());
  await Promise.all([...others, onOne.length ? together() : null]);
  said("the console is as it should be; screenshots: " + work);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.end();
  for (const thing of started) thing.process?.exitCode === null && thing.process.kill("SIGKILL");
  // Clients of a test that failed would keep the process.
  setTimeout(() => process.exit(), 500).unref();
}
