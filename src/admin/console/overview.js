// The server and its ensemble at a glance.

const SAMPLES_MAX = 150;
const samples = [];

// What is between two looks: rates, and means of what was measured in between.
function sample(now) {
  const before = samples.at(-1);
  const rate = (value, old) => Math.max(0, value - old) * 1000 / Math.max(1, now.time_ms - before.raw.time_ms);
  const mean = (one, old) => (one.count > old.count ? (one.sum_us - old.sum_us) / (one.count - old.count) / 1000 : null);
  // A server that was restarted counts from the beginning.
  const fits = before && now.uptime_ms >= before.raw.uptime_ms && now.server === before.raw.server;
  if (before && !fits) samples.length = 0;
  const of = fits ? before.raw : null;
  samples.push({
    raw: now,
    writes: of && rate(now.transactions, of.transactions),
    requests: of && rate(now.packets_received, of.packets_received),
    readMs: of && mean(now.reads, of.reads),
    writeMs: of && mean(now.writes, of.writes),
    fsyncMs: of && mean(now.disk.fsync, of.disk.fsync),
    sessions: now.sessions,
  });
  if (samples.length > SAMPLES_MAX) samples.shift();
}

const course = name => samples.map(one => one[name] ?? null);

// The last value that was measured.
function latest(name) {
  for (let at = samples.length - 1; at >= 0; at--) if (samples[at][name] !== null) return samples[at][name];
  return null;
}

function figure(label, value, note, drawing) {
  return h("div", { class: "card figure" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value),
    h("span", { class: "note" }, note ?? ""), drawing);
}

const ms = value => (value === null ? "-" : value < 10 ? value.toFixed(2) + " ms" : value.toFixed(0) + " ms");
const perSecond = value => (value === null ? "-" : value < 10 ? value.toFixed(1) : whole(Math.round(value)));

function member(shown, now) {
  const word = !shown.connected ? ["not connected", "bad"] : shown.is_leader ? ["leader", "good"] :
    shown.role === "observer" ? ["observer", ""] : ["follower", ""];
  const lag = shown.behind === null || shown.behind === undefined ? "?" : shown.behind === 0 ? "none" : plural(shown.behind, "entry", "entries");
  return h("tr", { "data-key": "m" + shown.server },
    cell("Server", h("b", {}, String(shown.server)), shown.is_own ? h("span", { class: "soft" }, " (this one)") : ""),
    cell("Role", h("span", { class: "badge " + word[1] }, word[0])),
    cell("Address", h("code", {}, shown.address ?? "-")),
    cell("Clients at", h("code", {}, shown.client ?? "-")),
    cell("Lag", lag),
    cell("In step", shown.synced === null || shown.synced === undefined ? "?" : shown.synced ? "yes" : h("span", { class: "bad" }, "no")),
    cell("Clock", shown.is_own && now.mode === "leader" ? "reference" : shown.clock_skew_ms === null || shown.clock_skew_ms === undefined ? "?" :
      (shown.clock_skew_ms >= 0 ? "+" : "") + shown.clock_skew_ms + " ms"));
}

// A cell, with its head for narrow screens.
function cell(head, ...content) { return h("td", { "data-head": head }, h("span", {}, content)); }

function table(key, heads, rows) {
  return h("div", { class: "scroll", "data-key": key }, h("table", { class: "rows " + key },
    h("thead", {}, h("tr", {}, heads.map(head => h("th", { scope: "col", class: head === "Actions" ? "act" : null },
      head === "Actions" ? h("span", { class: "hidden" }, head) : head)))),
    h("tbody", {}, rows)));
}

// Since when the leader leads, as far as this server knows.
function leads(now) {
  const change = now.elections.at(-1);
  if (now.leader === null || now.leader === undefined) return now.mode === "standalone" ? null : "No leader is known";
  const since = now.leading_ms !== null && now.leading_ms !== undefined ? now.time_ms - now.leading_ms : change?.time_ms;
  return "since " + (since ? date(since).slice(0, 19) + " (" + duration(now.time_ms - since) + ")" : "?");
}

views.overview = {
  title: "Overview",
  async ask() { return null; },
  show(_, now) {
    const led = leads(now);
    const cards = [
      figure("This server", now.server ? "Server " + now.server : "Standalone", (now.server ? now.mode + ", " : "") + "up " + duration(now.uptime_ms)),
      now.mode === "standalone" ? null : figure("Leader", now.leader ? "Server " + now.leader : "none", led + (now.leader ? ", term " + now.term : "")),
      now.migration ? figure("Migration from ZooKeeper", now.migration.state, plural(now.migration.compared, "digest") + " compared", h("p", { class: "soft" }, now.migration.copy ? "The " + now.migration.copy : now.migration.next ?? "")) : null,
      figure("Writes per second", perSecond(latest("writes")), "mean latency " + ms(latest("writeMs")), spark(course("writes"), "writes per second")),
      figure("Write latency", ms(latest("writeMs")), "mean between two looks", spark(course("writeMs"), "write latency")),
      figure("Read latency", ms(latest("readMs")), "mean between two looks", spark(course("readMs"), "read latency")),
      figure("Packets per second", perSecond(latest("requests")), "from clients of this server", spark(course("requests"), "packets per second")),
      figure("Sessions", whole(now.sessions), plural(now.connections, "connection") + " here", spark(course("sessions"), "sessions")),
      figure("Disk: fsync", now.disk.fsync.count ? ms(latest("fsyncMs")) : "-", now.disk.fsync.count ? plural(now.disk.fsyncs_slow, "slow one") + " since the start" : "nothing is synced: in memory, or nothing was written", spark(course("fsyncMs"), "time of an fsync")),
    ];
    const members = now.members.length ? h("section", { class: "card", "data-key": "members" }, h("h2", {}, "Members"),
      now.mode !== "leader" ? h("p", { class: "soft" }, "How far the others have come only the leader knows", now.leader ? " (server " + now.leader + ")." : ".") : null,
      table("members", ["Server", "Role", "Address", "Clients at", "Lag", "In step", "Clock"], now.members.map(one => member(one, now)))) : null;
    const elections = now.elections.length ? h("section", { class: "card", "data-key": "elections" }, h("h2", {}, "Who led"),
      h("p", { class: "soft" }, "As this server has noticed since its start, newest first."),
      table("elections", ["From", "For", "Leader", "Term"], now.elections.map((change, at) => {
        const until = now.elections[at + 1]?.time_ms ?? now.time_ms;
        return h("tr", { "data-key": change.time_ms + "." + at }, cell("From", date(change.time_ms)), cell("For", duration(until - change.time_ms)),
          cell("Leader", change.leader === null ? h("span", { class: "bad" }, "none") : "server " + change.leader), cell("Term", String(change.term)));
      }).reverse().slice(0, 12))) : null;
    const facts = h("section", { class: "card", "data-key": "facts" }, h("h2", {}, "State and disk"), h("dl", { class: "facts" }, [
      ["Last zxid", h("code", {}, "0x" + BigInt(now.zxid).toString(16))],
      ["Clients connect to", copyable(now.client_address ?? now.secure_client_address ?? "nowhere")],
      ["Znodes", whole(now.znodes) + ", of which " + whole(now.ephemerals) + " ephemeral, " + bytes(now.data_bytes)],
      ["Watches here", whole(now.watches)],
      ["Sessions expired", whole(now.sessions_expired) + " since the start, by this server"],
      ["Log", now.disk.log_dir ? [h("code", {}, now.disk.log_dir), " " + bytes(now.disk.log_bytes)] : "in memory"],
      ["Data", now.disk.data_dir ? [h("code", {}, now.disk.data_dir), " " + bytes(now.disk.data_bytes)] : "in memory"],
      ["Last image", now.disk.last_image_ms ? date(now.disk.last_image_ms) : "none yet"],
    ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
    return [h("div", { class: "grid", "data-key": "grid" }, cards), members, elections, facts];
  },
};
