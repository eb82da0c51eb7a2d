// The tree of znodes, read only: what is expanded is asked for, and nothing else.

const EXPANDED_MAX = 40;
const PAGE = 100;

const expanded = new Set(["/"]);
// How many children are shown of a znode.
const pages = new Map();

function znode(path) {
  return ask("znodes?path=" + encodeURIComponent(path) + "&limit=" + Math.min(500, pages.get(path) ?? PAGE));
}

async function znodeIfThere(path) {
  try {
    return await znode(path);
  } catch (trouble) {
    if (trouble.status === 404) return null;
    throw trouble;
  }
}

function nodeRow(path, name, facts, known, chosen) {
  const isOpen = expanded.has(path), isChosen = path === chosen;
  const note = [facts.children ? whole(facts.children) : "", facts.session ? "ephemeral" : ""].filter(Boolean).join(", ");
  return h("li", { "data-key": path },
    h("div", { class: isChosen ? "node chosen" : "node", "data-key": "row" },
      facts.children ? h("button", { type: "button", class: "open", "data-key": "open", "data-act": "expand", "data-arg": path, "aria-expanded": String(isOpen), "aria-label": (isOpen ? "Close " : "Open ") + path }, isOpen ? "\u25be" : "\u25b8") : h("span", { class: "open", "data-key": "none" }),
      h("a", { class: "pick", "data-key": "pick", href: "#tree?path=" + encodeURIComponent(path), "aria-current": isChosen ? "true" : null }, name),
      h("span", { class: "note", "data-key": "note" }, note)),
    isOpen && known.has(path) ? nodeList(path, known, chosen) : null);
}

function nodeList(path, known, chosen) {
  const node = known.get(path);
  return h("ul", { class: "nodes", "data-key": "below" }, node.children.map(child => nodeRow(join(path, child.name), child.name, child, known, chosen)),
    node.more ? h("li", { "data-key": "more" }, node.children.length >= 500 ? h("span", { class: "soft" }, "and more: only the first 500 are shown") : h("button", { type: "button", class: "plain", "data-act": "page", "data-arg": path }, "Show more")) : null,
    node.cut ? h("li", { "data-key": "cut", class: "soft" }, "There are too many children to look at all of them.") : null);
}

function asJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}

// Sixteen bytes a line, as hexdump -C has them.
function hexdump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const line = hex.slice(at, at + 32).match(/../g);
    const text = line.map(byte => { const code = parseInt(byte, 16); return code > 31 && code < 127 ? String.fromCharCode(code) : "."; }).join("");
    lines.push((at / 2).toString(16).padStart(8, "0") + "  " + line.slice(0, 8).join(" ").padEnd(24) + " " + line.slice(8).join(" ").padEnd(24) + " |" + text + "|");
  }
  return lines.join("\n");
}

function dataOf(node) {
  const { hex, text, hidden, cut } = node.data;
  if (hidden) return h("p", { class: "soft", "data-key": "data" }, "Its access control list does not let everyone read its data: they are shown to those who have the token of ", h("code", {}, "lockkeeper.adminTokenFile"), ". ",
    h("button", { type: "button", "data-act": "token" }, "Give the token"));
  if (hex === null) return h("p", { class: "soft", "data-key": "data" }, "No data.");
  if (hex === "") return h("p", { class: "soft", "data-key": "data" }, "Empty data.");
  const json = text === null ? null : asJson(text);
  const forms = [["json", "JSON", json], ["text", "Text", text], ["hex", "Hex", hexdump(hex)]].filter(([, , shown]) => shown !== null);
  const [form, , shown] = forms.find(([name]) => name === place.get("form")) ?? forms[0];
  return h("div", { "data-key": "data" },
    h("div", { class: "forms", role: "group", "aria-label": "Show data as" }, forms.map(([name, label]) => h("button", { type: "button", "data-act": "form", "data-arg": name, "aria-pressed": String(name === form) }, label)),
      h("button", { type: "button", "data-act": "copy", "data-arg": form === "hex" ? hex : shown }, "Copy")),
    h("pre", { class: form === "hex" ? "hexdump" : null, tabindex: "0", role: "region", "aria-label": "Data" }, shown),
    cut ? h("p", { class: "soft" }, "These are the first 64 KiB of " + bytes(node.stat.data_bytes) + ".") : null);
}

function details(path, node) {
  if (!node) return h("div", { class: "card", "data-key": "details" }, h("h2", {}, copyable(path)), h("p", { class: "bad" }, "There is no such znode."));
  const stat = node.stat;
  const zxid = value => h("code", {}, "0x" + BigInt(value).toString(16));
  return h("div", { class: "card", "data-key": "details" }, h("h2", {}, copyable(path)),
    h("h3", {}, "Data"), dataOf(node),
    h("h3", {}, "Access control list"),
    node.acl.map((entry, at) => h("p", { "data-key": "acl" + at }, h("code", {}, entry.scheme + ":" + entry.id + ":" + entry.permissions))),
    h("h3", {}, "Stat"), h("dl", { class: "facts" }, [
      ["Created", date(stat.ctime_ms)], ["Changed", date(stat.mtime_ms)], ["Bytes of data", whole(stat.data_bytes)], ["Children", whole(stat.children)],
      ["Version of data", whole(stat.version)], ["Version of children", whole(stat.cversion)], ["Version of the list", whole(stat.aversion)],
      ["Session", stat.session ? copyable(stat.session) : "none: it is not ephemeral"],
      ["czxid", [zxid(stat.czxid), h("span", { class: "soft" }, " as a fencing token: " + stat.czxid)]], ["mzxid", zxid(stat.mzxid)], ["pzxid", zxid(stat.pzxid)],
    ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

views.tree = {
  title: "Tree",
  async ask() {
    const chosen = place.get("path") || "/";
    // What is above the chosen one is open.
    for (let above = chosen; above !== "/"; above = parent(above)) if (above !== chosen && !closed.has(above)) expanded.add(above);
    const wanted = [...new Set(["/", ...expanded])].slice(0, EXPANDED_MAX);
    const known = new Map();
    for (const path of wanted) {
      const node = await znodeIfThere(path);
      if (node) known.set(path, node);
      else expanded.delete(path);
    }
    const shown = known.get(chosen) ?? await znodeIfThere(chosen);
    return { chosen, known, shown };
  },
  show({ chosen, known, shown }) {
    const root = known.get("/");
    return [
      h("div", { class: "browser", "data-key": "browser" },
        h("div", { class: "card", "data-key": "nodes" },
          h("form", { class: "bar", "data-key": "go", "data-form": "go" }, h("label", { for: "path" }, "Go to"), h("input", { id: "path", "data-key": "path", placeholder: "/a/path", spellcheck: "false", autocomplete: "off" })),
          h("ul", { class: "nodes", "data-key": "root" }, root ? nodeRow("/", "/", { children: root.stat.children, session: null }, known, chosen) : null)),
        details(chosen, shown)),
      expanded.size > EXPANDED_MAX ? h("p", { class: "soft", "data-key": "many" }, "More than " + EXPANDED_MAX + " znodes are open: the last ones are not shown.") : null,
    ];
  },
};

// Those that were closed by hand stay so while something below them is chosen.
const closed = new Set();
function expand(path) {
  if (expanded.delete(path)) {
    closed.add(path);
    for (const other of [...expanded]) if (other.startsWith(path === "/" ? "/" : path + "/") && other !== "/") expanded.delete(other);
  } else {
    closed.delete(path);
    expanded.add(path);
  }
}
