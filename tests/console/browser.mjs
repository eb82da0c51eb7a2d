// A headless Chromium, driven by the Chrome DevTools protocol over two pipes.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PATIENCE_MS = 15_000;

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), "lockkeeper-console-"));
    browser.process = spawn("chromium", ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--hide-scrollbars", "--disable-extensions", "--remote-debugging-pipe", "--user-data-dir=" + browser.profile, "about:blank"],
      { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.waiting = new Map();
    browser.listeners = [];
    browser.last = 0;
    let rest = "";
    browser.process.stdio[4].setEncoding("utf8").on("data", chunk => {
      const messages = (rest + chunk).split("\0");
      rest = messages.pop();
      for (const text of messages) browser.take(JSON.parse(text));
    });
    return browser;
  }

  take(message) {
    if (message.id === undefined) return this.listeners.forEach(listener => listener(message));
    const { resolve, reject } = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.error) reject(new Error(message.error.message));
    else resolve(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.last;
    this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(method + " was not answered")), PATIENCE_MS);
      const end = done => value => { clearTimeout(timer); done(value); };
      this.waiting.set(id, { resolve: end(resolve), reject: end(reject) });
    });
  }

  async open(url, look) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    await page.start(url, look);
    return page;
  }

  async end() {
    const ended = new Promise(resolve => this.process.once("exit", resolve));
    await this.send("Browser.close").catch(() => this.process.kill("SIGKILL"));
    await ended;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Page {
  constructor(browser, sessionId, targetId) {
    Object.assign(this, { browser, sessionId, targetId, errors: [] });
    browser.listeners.push(message => {
      if (message.sessionId === sessionId) this.hear(message);
    });
  }

  hear({ method, params }) {
    if (method === "Runtime.exceptionThrown") this.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      this.errors.push(params.args.map(one => one.value ?? one.description).join(" "));
    }
    // What the policy of the page forbids, and what cannot be loaded.
    if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) this.errors.push(params.entry.text + " " + (params.entry.url ?? ""));
  }

  send(method, params) { return this.browser.send(method, params, this.sessionId); }

  async start(url, { width = 1280, height = 900, dark = false } = {}) {
    await this.send("Runtime.enable");
    await this.send("Log.enable");
    await this.send("Page.enable");
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
    await this.send("Page.navigate", { url });
    await this.until("document.body?.dataset.looks > 0");
  }

  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  async until(expression, ms = PATIENCE_MS) {
    const end = Date.now() + ms;
    while (!(await this.run("Boolean(" + expression + ")"))) {
      if (Date.now() > end) throw new Error("not so in time: " + expression + "\nthe page says: " + await this.run("document.body.innerText.slice(0, 2000)"));
      await new Promise(resolve => setTimeout(resolve, 50));
    }
  }

  // So many more looks of the page at the server.
  async looks(count) {
    // One begins at once when a page is shown again.
    const look = "(document.dispatchEvent(new Event('visibilitychange')), Number(document.body.dataset.looks))";
    const before = await this.run("Number(document.body.dataset.looks)");
    await this.until(look + " >= " + (before + count), 4_000 * count);
  }

  async key(key, code = key, windowsVirtualKeyCode = 0) {
    const text = key === "Enter" ? "\r" : undefined;
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, code, windowsVirtualKeyCode, text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key, code, windowsVirtualKeyCode });
  }

  // The whole page, or the first part of a long one.
  async screenshot(path) {
    const { cssContentSize: { width, height } } = await this.send("Page.getLayoutMetrics");
    const clip = { x: 0, y: 0, width, height: Math.min(height, 2400), scale: 1 };
    const { data } = await this.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip });
    writeFileSync(path, Buffer.from(data, "base64"));
  }

  async close() { await this.browser.send("Target.closeTarget", { targetId: this.targetId }); }
}
