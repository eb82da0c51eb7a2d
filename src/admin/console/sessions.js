// Sessions, and who watches what.

const ROWS_MAX = 100;

function rest(count, shown) {
  return count > shown ? h("p", { "data-key": "rest" }, h("button", { type: "button", "data-act": "rest" }, "Show all " + whole(count))) : null;
}

function sessionRow(one) {
  return h("tr", { "data-key": one.session },
    cell("Session", copyable(one.session)), cell("Client", client(one)), cell("Ends", health(one)),
    cell("Heard", one.heard_ms === null ? "?" : duration(one.heard_ms) + " ago"), cell("Timeout", duration(one.timeout_ms)),
    cell("Ephemerals", whole(one.ephemerals)), cell("Watches", whole(one.watches)));
}

views.sessions = {
  title: "Sessions",
  ask: () => ask("sessions"),
  count: answer => answer.sessions.length,
  show(answer) {
    const filter = place.get("q");
    const known = filter ? answer.sessions.filter(one => fits(filter, one.session, one.remote, one.client)) : answer.sessions;
    const shown = place.get("rest") ? known : known.slice(0, ROWS_MAX);
    return [
      filterBar("Filter", "an id or an address", plural(known.length, "session")), remarks(answer),
      known.length ? h("section", { class: "card", "data-key": "sessions" }, table("sessions", ["Session", "Client", "Ends", "Heard", "Timeout", "Ephemerals", "Watches"], shown.map(sessionRow))) :
        h("div", { class: "card empty", "data-key": "empty" }, h("h2", {}, filter ? "No session fits the filter" : "No sessions"), h("p", {}, "A client that connects has one.")),
      rest(known.length, shown.length),
    ];
  },
};

views.watches = {
  title: "Watches",
  ask: () => ask("watches"),
  show(answer) {
    const filter = place.get("q");
    const known = answer.sessions.map(one => ({ ...one, paths: filter ? one.paths.filter(path => fits(filter, path, one.session)) : one.paths })).filter(one => one.paths.length);
    const shown = place.get("rest") ? known : known.slice(0, ROWS_MAX);
    return [
      filterBar("Filter", "a path or a session", plural(answer.total, "watch", "watches") + " of " + plural(answer.connections, "connection") + " on " + plural(answer.paths, "path") + ", at this server"),
      answer.cut ? h("p", { class: "finding", "data-key": "cut" }, "This is not all: there is more than one answer may hold.") : null,
      known.length ? h("section", { class: "card", "data-key": "watches" }, table("watches", ["Session", "Watches", "Paths"], shown.map(one =>
        h("tr", { "data-key": one.session }, cell("Session", copyable(one.session)), cell("Watches", whole(one.count)),
          cell("Paths", one.paths.slice(0, 20).map((path, at) => [at ? ", " : "", h("a", { href: "#tree?path=" + encodeURIComponent(path) }, h("code", {}, path))]), one.paths.length > 20 ? " and " + (one.paths.length - 20) + " more" : ""))))) :
        h("div", { class: "card empty", "data-key": "empty" }, h("h2", {}, filter ? "No watch fits the filter" : "No watches"), h("p", {}, "What clients of this server watch is shown here.")),
      rest(known.length, shown.length),
    ];
  },
};
