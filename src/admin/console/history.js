// The time line of a lock: who held it when, with the elections on the same axis; how long it was held and waited for.

const SPAN_MIN = 10_000;

function historyOf(lock, history) {
  if (!history) return h("p", { class: "soft" }, "Of more than five locks at a time no time line is shown.");
  const now = history.time_ms;
  const isOf = one => (lock.name === null || one.lock === null || one.lock === lock.name) && one.held;
  const left = history.left.filter(isOf);
  const who = new Map(lock.holders.concat(lock.waiters).filter(one => one.session).map(one => [one.session, one.identity]));
  const name = one => seen.get(one.session) ?? who.get(one.session) ?? one.session ?? "no session";
  const gone = left.map(one => ({
    from: one.held_since_ms ?? one.created_ms, until: one.ended_ms, waited: one.held_since_ms === null ? null : one.created_ms,
    isUnknown: one.held_since_ms === null, bad: one.end === "session-expired" || one.end === "removed", raw: one,
    label: name(one) + " held it " + (one.held_since_ms === null ? "until " : "for " + duration(one.ended_ms - one.held_since_ms) + ", until ") + clock(one.ended_ms, true) + ": " + ENDS[one.end] + " (token " + one.token + ")",
  }));
  const current = lock.holders.map(one => ({
    from: now - (one.held_ms ?? one.age_ms), until: now, waited: one.held_ms === null ? null : now - one.age_ms, isNow: true, isUnknown: one.held_ms === null,
    label: (one.identity ?? one.session) + " holds it" + (one.held_ms === null ? "; since when is not known" : " for " + duration(one.held_ms)) + " (token " + one.token + ")",
  }));
  const holds = gone.concat(current);
  const isKnown = history.known_since_ms !== null && history.known_since_ms < Number.MAX_SAFE_INTEGER && history.known_since_ms > 0;
  // From the first hold on that ended; of one that lasts for longer than all of them, a part.
  const first = Math.min(...(gone.length ? gone : current).map(one => one.from), now - SPAN_MIN);
  const from = first - (now - first) / 30;
  const elections = history.elections;
  const held = left.filter(one => one.held_since_ms !== null);
  const rows = left.slice(-10).reverse().map(one => h("tr", { "data-key": String(one.token) + one.node },
    cell("Until", date(one.ended_ms)), cell("Who", h("span", {}, name(one))), cell("Held", one.held_since_ms === null ? "?" : duration(one.ended_ms - one.held_since_ms)),
    cell("Waited", one.held_since_ms === null ? "?" : duration(one.held_since_ms - one.created_ms)), cell("Token", copyable(String(one.token), null, "the token")),
    cell("End", h("span", { class: one.end === "released" || one.end === "session-closed" ? "" : "bad" }, ENDS[one.end]))));
  return [
    h("h3", {}, "Hand-overs" + (elections.length ? " and elections" : "")),
    timeline({ holds, elections, from, to: now, width: $("view").clientWidth - 44 }),
    h("div", { class: "legend" }, h("span", {}, h("i", { class: "l-held" }), "held"), h("span", {}, h("i", { class: "l-now" }), "holds now"), h("span", {}, h("i", { class: "l-waited" }), "waited"),
      h("span", {}, h("i", { class: "l-bad" }), "expired or taken away"), elections.length ? h("span", {}, h("i", { class: "l-term" }), "another leader") : null),
    h("p", { class: "soft" }, plural(left.length, "hold") + " that ended, as this server has seen " + (left.length === 1 ? "it" : "them") +
      (isKnown ? "; what ended before " + date(history.known_since_ms).slice(0, 19) + " is not known" : "") + (elections.length ? ". Elections: since the start of this server" : "") + "."),
    h("div", { class: "two" },
      h("div", {}, h("h3", {}, "Held for"), histogram(held.map(one => one.ended_ms - one.held_since_ms), "Times of holding")),
      h("div", {}, h("h3", {}, "Waited for"), histogram(held.map(one => one.held_since_ms - one.created_ms), "Times of waiting"))),
    rows.length ? table("left", ["Until", "Who", "Held", "Waited", "Token", "End"], rows) : null,
    h("h3", {}, "Now"),
  ];
}

// Who was seen in which session, so that a session that is over still has a name.
const seen = new Map();
function remember(locks) {
  for (const lock of locks) for (const one of lock.holders.concat(lock.waiters)) if (one.session && one.identity) {
    if (seen.size > 5000) seen.clear();
    seen.set(one.session, one.identity);
  }
}
