// Locks: who holds each, who waits, and what is wrong.

const SHOWN_MAX = 10;

function client(shown) {
  if (shown.client === "connected") return [h("code", { class: "nowrap" }, shown.remote), shown.server ? " at server " + shown.server : ""];
  if (shown.client === "disconnected") return h("span", { class: "bad" }, "not connected");
  if (shown.client === "elsewhere") return "at ZooKeeper, or gone";
  return shown.client === "none" ? "no session" : "?";
}

// What is left of a session's timeout.
function health(shown) {
  if (shown.expires_in_ms === null || shown.expires_in_ms === undefined || !shown.timeout_ms) return "";
  const left = Math.max(0, Math.min(1, shown.expires_in_ms / shown.timeout_ms));
  const words = "ends in " + duration(shown.expires_in_ms) + " of " + duration(shown.timeout_ms) + " unless heard from";
  return h("span", { class: left < 0.34 ? "health late" : "health", role: "img", "aria-label": words, title: words }, h("i", { "width-percent": Math.round(100 * left) }));
}

// Which kind of cell it is, in a column with two; a small screen has a head in front of each cell, which says so.
function kind(word) {
  return h("span", { class: "kind" }, word, " ");
}

function watched(place) {
  if (place.watches === null) return [kind("watches"), "?"];
  if (place.watches.length === 0) return [kind("watches"), "nothing"];
  return [kind("watches"), place.watches.slice(0, 3).map((w, at) => [at ? ", " : "", h("code", { title: w.path }, w.kind === "data" ? short(last(w.path)) : w.path), w.kind === "data" ? "" : " (" + w.kind + ")"]),
    place.watches.length > 3 ? " and " + (place.watches.length - 3) + " more" : ""];
}

function action(what, place, label, look) {
  return h("button", { type: "button", class: "plain " + (look ?? ""), "data-act": what, "data-arg": place.node, "data-token": String(place.token),
    "data-who": place.identity ?? place.session ?? "", "aria-label": label + ": " + place.node }, label);
}

function placeRow(word, place) {
  const mode = place.mode === "read" || place.mode === "write" ? word + " (" + place.mode + ")" : word;
  const since = place.held_ms !== null ? duration(place.held_ms) : (word === "holds" ? "< " : "") + duration(place.age_ms);
  return h("tr", { "data-key": place.node },
    cell("", h("span", { class: "word " + word }, mode)),
    cell("Who", place.identity ?? "-", place.asked_to_release ? [" ", h("span", { class: "word warn" }, "asked to release")] : ""),
    cell("Client", client(place)),
    cell("Session", health(place)),
    cell("For", h("span", { class: "num nowrap" }, since)),
    cell(word === "holds" ? "Token" : "Watches", word === "holds" ? [kind("token"), copyable(String(place.token), null, "the fencing token")] : watched(place)),
    cell("Znode", copyable(place.node, short(last(place.node)))),
    h("td", { class: "act", "data-head": "" }, h("span", {}, action("revoke", place, "Ask to release"), action("break", place, "Break", "bad"))));
}

function cycle(finding) {
  if (!finding.cycle) return h("p", { class: "soft" }, finding.nodes.map((node, at) => [at ? ", " : "", h("code", {}, node)]));
  return h("ol", { class: "cycle" }, finding.cycle.map((step, at) => h("li", {},
    h("span", { class: "who" }, h("b", {}, step.identity ?? step.session), " holds ", h("code", {}, step.holds)), h("span", {}, " waits for "),
    h("code", {}, step.waits_for), " ", at < finding.cycle.length - 1 ? h("span", { "aria-hidden": "true" }, "\u2192") : h("span", { class: "soft" }, "(back to the first)"))));
}

// The sentence of a deadlock names its sessions one by one; the page shows them below.
function words(finding) {
  return finding.cycle ? finding.text.replace(/: .*\. None of them/s, ". None of them") : finding.text;
}

function findingBox(finding, at) {
  return h("div", { class: "finding", "data-key": "f" + finding.kind + at }, h("b", {}, finding.kind), ": ", words(finding), cycle(finding));
}

const lockKey = lock => lock.path + " " + (lock.name ?? "");

// The directory of its contenders.
const directoryOf = lock => { const one = lock.holders[0] ?? lock.waiters[0]; return one ? parent(one.node) : lock.path; };

function lockCard(lock, histories) {
  const key = lockKey(lock);
  const showsAll = place.all("all").includes(key), showsHistory = place.all("line").includes(key);
  const waits = lock.waiters.map(one => one.age_ms);
  const words = [lock.kind + (lock.limit === null ? "" : " of " + lock.limit), lock.dialects.join(" and "),
    plural(lock.holders.length, "holder"), waits.length + lock.hidden ? plural(waits.length + lock.hidden, "waiter") + ", the longest for " + duration(Math.max(...waits)) : "no waiters"];
  const holders = showsAll ? lock.holders : lock.holders.slice(0, SHOWN_MAX);
  const waiters = showsAll ? lock.waiters : lock.waiters.slice(0, SHOWN_MAX);
  const rows = holders.map(one => placeRow("holds", one)).concat(waiters.map(one => placeRow("waits", one)));
  const count = lock.holders.length + lock.waiters.length;
  const isLong = count > rows.length || showsAll && (lock.holders.length > SHOWN_MAX || lock.waiters.length > SHOWN_MAX);
  const id = "line-" + encodeURIComponent(key);
  return h("section", { class: lock.findings.length ? "card lock wrong" : "card lock", "data-key": key, "aria-label": "Lock " + lock.path },
    h("div", { class: "top" }, h("h2", {}, copyable(lock.path), lock.name === null ? "" : " [" + lock.name + "]"), h("span", { class: "what" }, words.join(" \u00b7 ")),
      h("button", { type: "button", "data-act": "line", "data-arg": key, "aria-expanded": String(showsHistory), "aria-label": "Time line of " + lock.path, "data-key": "line" }, "Time line")),
    h("div", { "data-key": "findings" }, lock.findings.map(findingBox)),
    showsHistory ? h("div", { class: "history", id, "data-key": "history" }, historyOf(lock, histories.get(key))) : null,
    table("places", ["State", "Who", "Client", "Session", "For", "Token / watches", "Znode", "Actions"], rows),
    isLong ? h("p", { class: "more", "data-key": "more" }, h("button", { type: "button", "data-act": "all", "data-arg": key, "aria-expanded": String(showsAll) },
      showsAll ? "Show " + SHOWN_MAX + " only" : "Show all " + whole(count)), showsAll ? "" : h("span", { class: "soft" }, " " + whole(count - rows.length) + " more")) : null,
    lock.hidden ? h("p", { class: "soft", "data-key": "hidden" }, plural(lock.hidden, "more contender") + " did not fit into the answer.") : null);
}

// A filter that begins with a slash is a path, which the server narrows the answer to; any other is a text to look for.
const isPath = filter => filter.startsWith("/");

function fits(filter, ...texts) {
  const wanted = filter.toLowerCase();
  return texts.some(text => text && String(text).toLowerCase().includes(wanted));
}

function filterBar(label, hint, right) {
  return h("div", { class: "bar", "data-key": "bar" }, h("label", { for: "filter" }, label),
    h("input", { id: "filter", "data-key": "filter", type: "search", placeholder: hint, spellcheck: "false", autocomplete: "off" }), h("span", { class: "soft", "data-key": "count" }, right));
}

const silent = answer => answer.servers.filter(one => !one.answered).map(one => one.server);

function remarks(answer) {
  const words = [];
  if (silent(answer).length) words.push("Server " + silent(answer).join(", ") + " did not answer: what is there is not known.");
  if (!answer.serving) words.push("This server has no leader: this may be old.");
  if (answer.cut) words.push("This is not all: there is more than one answer may hold.");
  return words.length ? h("p", { class: "finding", "data-key": "remarks" }, words.join(" ")) : null;
}

views.locks = {
  title: "Locks",
  async ask() {
    const filter = place.get("q");
    const answer = await ask("locks?prefix=" + encodeURIComponent(isPath(filter) ? filter : "/"));
    const histories = new Map();
    for (const lock of answer.locks) {
      const key = lockKey(lock);
      if (!place.all("line").includes(key) || histories.size >= 5) continue;
      histories.set(key, await ask("locks/history?path=" + encodeURIComponent(directoryOf(lock))));
    }
    return { answer, histories };
  },
  count: ({ answer }) => answer.locks.length,
  show({ answer, histories }) {
    const filter = place.get("q");
    const known = isPath(filter) || !filter ? answer.locks : answer.locks.filter(lock => fits(filter, lock.path, lock.name, lock.kind,
      ...lock.findings.map(one => one.kind), ...lock.holders.concat(lock.waiters).flatMap(one => [one.node, one.identity, one.session, one.remote])));
    // What is wrong comes first; a deadlock before all.
    const rank = lock => (lock.findings.some(one => one.kind === "deadlock") ? 0 : lock.findings.length ? 1 : 2);
    const ordered = known.map((lock, at) => [rank(lock), at, lock]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(one => one[2]);
    const all = place.get("rest") ? ordered : ordered.slice(0, 100);
    return [
      filterBar("Filter", "/path, or a text", plural(known.length, "lock") + ", " + plural(known.filter(lock => lock.findings.length).length, "with findings", "with findings")),
      remarks(answer),
      all.map(lock => lockCard(lock, histories)),
      ordered.length > all.length ? h("p", { "data-key": "rest" }, h("button", { type: "button", "data-act": "rest" }, "Show all " + whole(ordered.length) + " locks")) : null,
      known.length ? null : h("div", { class: "card empty", "data-key": "empty" }, h("h2", {}, filter ? "No lock fits the filter" : "No locks"),
        h("p", {}, filter ? "Its paths, names, sessions and holders were looked through." : ["A lock is shown as soon as a client has one. Try ", h("code", {}, "lockkeeper lock /locks/demo -- sleep 60"), "."])),
    ];
  },
};
