#!/usr/bin/env node
// Opens the report of a run in a headless Chromium and looks at it as a reader would: which panels are there, how long it takes, what
// the console says. Exits with 1 if a panel is missing, the console has an error, or it takes longer than 3 s.
//
//   jepsen/open_report.mjs target/jepsen/latest/report.html [screenshot.png]
//
// CHROMIUM names another browser.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const PANELS = ["Checks", "Latency", "Rate", "Leaders and terms", "What happened"];
const LOAD_MAX_MS = 3000;
const [report, screenshot] = process.argv.slice(2);
if (!report) {
  console.error("usage: open_report.mjs report.html [screenshot.png]");
  process.exit(2);
}
const profile = mkdtempSync(join(tmpdir(), "open-report-"));
const browser = spawn(
  process.env.CHROMIUM ?? "chromium",
  ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
const [, , , out, back] = browser.stdio;
const waiting = new Map();
let tellLoaded;
const loaded = new Promise((done) => (tellLoaded = done));
const errors = [];
let last = 0;
let rest = "";
back.setEncoding("utf8").on("data", (text) => {
  const messages = (rest + text).split("\0");
  rest = messages.pop();
  messages.forEach((message) => take(JSON.parse(message)));
});

function take(message) {
  if (message.id) {
    waiting.get(message.id)(message.result ?? message.error);
  } else if (message.method === "Runtime.exceptionThrown") {
    errors.push(message.params.exceptionDetails.text);
  } else if (message.method === "Log.entryAdded" && message.params.entry.level === "error") {
    errors.push(message.params.entry.text);
  } else if (message.method === "Runtime.consoleAPICalled" && message.params.type === "error") {
    errors.push(JSON.stringify(message.params.args));
  } else if (message.method === "Page.loadEventFired") {
    tellLoaded();
  }
}

function ask(method, params = {}, sessionId) {
  last += 1;
  out.write(JSON.stringify({ id: last, method, params, sessionId }) + "\0");
  return new Promise((done) => waiting.set(last, done));
}

const { targetInfos } = await ask("Target.getTargets");
const page = targetInfos.find((target) => target.type === "page");
const { sessionId } = await ask("Target.attachToTarget", { targetId: page.targetId, flatten: true });
for (const domain of ["Page", "Runtime", "Log"]) await ask(`${domain}.enable`, {}, sessionId);
const begun = performance.now();
await ask("Page.navigate", { url: `file://${resolve(report)}` }, sessionId);
await loaded;
const expression =
  "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(JSON.stringify({" +
  "panels: [...document.querySelectorAll('h2')].map((h) => h.textContent), drawings: document.querySelectorAll('svg').length," +
  "marks: document.querySelectorAll('svg *').length, width: document.documentElement.scrollWidth," +
  "height: document.documentElement.scrollHeight})))))";
const seen = await ask("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }, sessionId);
const load_ms = Math.round(performance.now() - begun);
const shown = JSON.parse(seen.result.value);
if (screenshot) {
  const clip = { x: 0, y: 0, width: shown.width, height: shown.height, scale: 1 };
  const { data } = await ask("Page.captureScreenshot", { captureBeyondViewport: true, clip }, sessionId);
  writeFileSync(screenshot, Buffer.from(data, "base64"));
}
browser.kill();
browser.on("exit", () => {
  rmSync(profile, { recursive: true, force: true });
  const missing = PANELS.filter((panel) => !shown.panels.includes(panel));
  console.log(JSON.stringify({ load_ms, ...shown, errors, missing }));
  process.exit(errors.length + missing.length > 0 || load_ms > LOAD_MAX_MS ? 1 : 0);
});
