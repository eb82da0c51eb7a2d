// Making, patching and asking. Everything that clients have written goes into the page as text.

const SVG = new Set(["svg", "path", "rect", "line", "text", "g", "title", "circle", "polyline", "polygon"]);

// An element; attributes that are null, undefined or false are left out.
function h(tag, attributes, ...children) {
  const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "width-percent") made.style.width = value + "%";
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child);
  }
  return made;
}

const keyOf = node => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

// Makes `old` like `made`, and leaves alone what is like it already: so what is selected, focused or scrolled stays.
function patch(old, made) {
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) {
    if (old.getAttribute(name) === value) continue;
    // The page's policy lets no attribute have style, but a script.
    if (name === "style") old.style.cssText = made.style.cssText;
    else old.setAttribute(name, value);
  }
  patchChildren(old, [...made.childNodes]);
}

function patchChildren(parent, wanted) {
  const keys = new Set(wanted.map(keyOf).filter(key => key !== null));
  const known = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (key === null) continue;
    if (keys.has(key)) known.set(key, child);
    else child.remove();
  }
  let at = parent.firstChild;
  for (const child of wanted) {
    const key = keyOf(child);
    let same = key === null ? null : known.get(key);
    if (key === null) {
      // A new child with a key may stand in front of those without one.
      if (at && keyOf(at) === null && at.nodeName === child.nodeName) same = at;
    }
    if (same && same.nodeName === child.nodeName) {
      if (same === at) at = at.nextSibling;
      else parent.insertBefore(same, at);
      if (same.nodeType === Node.TEXT_NODE) { if (same.data !== child.data) same.data = child.data; }
      else patch(same, child);
    } else {
      parent.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const $ = id => document.getElementById(id);

function duration(ms) {
  if (ms === null || ms === undefined) return "?";
  if (ms < 1000) return Math.round(ms) + " ms";
  const s = Math.floor(ms / 1000);
  if (s < 60) return (ms / 1000).toFixed(1) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s / 60) % 60 + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s / 3600) % 24 + " h";
}

function bytes(count) {
  if (count === null || count === undefined) return "?";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit++; }
  return (unit && count < 100 ? count.toFixed(1) : Math.round(count)) + " " + units[unit];
}

// A name without most of the GUID in it, which only programs read.
const short = name => name.replace(/[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}/i, guid => guid.slice(0, 4) + "\u2026");

const whole = value => (value === null || value === undefined ? "?" : value.toLocaleString("en-US"));
const pad = (value, digits = 2) => String(value).padStart(digits, "0");

function clock(ms, withMillis) {
  const at = new Date(ms);
  const text = pad(at.getHours()) + ":" + pad(at.getMinutes()) + ":" + pad(at.getSeconds());
  return withMillis ? text + "." + pad(at.getMilliseconds(), 3) : text;
}

function date(ms) {
  if (!ms) return "-";
  const at = new Date(ms);
  return at.getFullYear() + "-" + pad(at.getMonth() + 1) + "-" + pad(at.getDate()) + " " + clock(ms, true);
}

const last = path => path.slice(path.lastIndexOf("/") + 1);
const parent = path => path.slice(0, path.lastIndexOf("/")) || "/";
const join = (path, name) => (path === "/" ? "/" : path + "/") + name;
const plural = (count, one, many) => whole(count) + " " + (count === 1 ? one : many ?? one + "s");

// A text with a button that copies it.
function copyable(text, shown, what) {
  return h("span", { class: "copyable" }, h("code", { title: shown && shown !== text ? text : null }, shown ?? text),
    h("button", { type: "button", class: "icon", "data-act": "copy", "data-arg": text, title: "Copy", "aria-label": "Copy " + (what ?? text) },
      h("svg", { viewBox: "0 0 16 16", width: 12, height: 12, "aria-hidden": "true" },
        h("path", { d: "M5 5V2.5h8.5V11H11M2.5 5H11v8.5H2.5z", fill: "none", stroke: "currentColor", "stroke-width": 1.4 }))));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS a browser gives pages of other machines no clipboard.
    const area = h("textarea", { class: "hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied " + text);
}

function say(text) { $("said").textContent = text; }

// What the page shows, as the URL has it: a view, and what was chosen there.
const place = {
  tab: "overview",
  choices: new URLSearchParams(),
  read() {
    const [tab, query] = location.hash.slice(1).split(/\?(.*)/s);
    this.tab = tab in views ? tab : "overview";
    this.choices = new URLSearchParams(query ?? "");
  },
  get(name) { return this.choices.get(name) ?? ""; },
  all(name) { return this.choices.getAll(name); },
  set(name, value) {
    if (value) this.choices.set(name, value);
    else this.choices.delete(name);
    this.write();
  },
  // Adds a value of several, or takes it away.
  toggle(name, value) {
    const others = this.all(name).filter(known => known !== value);
    const had = others.length < this.all(name).length;
    this.choices.delete(name);
    for (const other of others) this.choices.append(name, other);
    if (!had) this.choices.append(name, value);
    this.write();
  },
  write() {
    const query = this.choices.toString();
    history.replaceState(null, "", "#" + this.tab + (query ? "?" + query : ""));
  },
};

// Each view: what it asks for, and how it shows the answer.
const views = {};

class Trouble extends Error {}

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: "Bearer " + token } : {};
}

// Elsewhere than on the server's machine its token is asked for.
async function ask(page, options) {
  let answer;
  const send = () => fetch(page, { cache: "no-store", ...options, headers: { ...headers(), ...options?.headers } });
  try {
    answer = await send();
    if (answer.status === 401 && await askToken()) answer = await send();
  } catch (error) {
    throw new Trouble("This server does not answer: " + error.message);
  }
  if (!answer.ok) {
    const trouble = new Trouble((await answer.text()).trim());
    trouble.status = answer.status;
    throw trouble;
  }
  return answer.json();
}

// A dialog; what its form gives, or null.
function dialog(title, content, buttons) {
  const box = $("ask");
  if (box.open) return Promise.resolve(null);
  box.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, title), content,
    h("div", { class: "buttons" }, buttons.map(([value, label, look, isFirst]) =>
      h("button", { value, class: look, type: value ? "submit" : "button", "data-act": value ? null : "cancel", autofocus: isFirst }, label)))));
  return new Promise(resolve => {
    box.returnValue = "";
    box.onclose = () => resolve(box.returnValue ? box.querySelector("form") : null);
    box.showModal();
  });
}

let asksToken = null;
function askToken() {
  asksToken ??= (async () => {
    const form = await dialog("The token of this server", [
      h("p", { class: "soft" }, "Names and data of znodes are shown on the server's own machine, or to those who have the token of ",
        h("code", {}, "lockkeeper.adminTokenFile"), ". It is kept until this tab is closed."),
      h("label", { for: "token" }, "Token"), h("input", { id: "token", type: "password", autocomplete: "off", autofocus: true }),
    ], [["", "Cancel", "", false], ["yes", "Use it", "", false]]);
    const given = form?.querySelector("input").value.trim();
    if (given) sessionStorage.setItem("token", given);
    asksToken = null;
    return Boolean(given);
  })();
  return asksToken;
}
