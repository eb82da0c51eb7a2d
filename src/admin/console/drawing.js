// Small drawings: a sparkline, a histogram, and the time line of a lock.

// The course of one figure over the last samples.
function spark(values, label) {
  const known = values.filter(value => value !== null);
  if (known.length < 2) return h("svg", { viewBox: "0 0 100 38", "aria-hidden": "true" });
  const top = Math.max(...known, 1e-9);
  const step = 100 / (values.length - 1);
  const points = values.map((value, at) => (value === null ? null : [at * step, 36 - 33 * value / top]))
    .filter(point => point !== null).map(([x, y]) => x.toFixed(2) + "," + y.toFixed(2));
  const first = points[0].split(",")[0], end = points.at(-1).split(",")[0];
  return h("svg", { viewBox: "0 0 100 38", preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("polygon", { class: "spark-area", points: first + ",38 " + points.join(" ") + " " + end + ",38" }),
    h("polyline", { class: "spark", points: points.join(" ") }));
}

const BUCKETS = [[10, "10 ms"], [100, "100 ms"], [1000, "1 s"], [10_000, "10 s"], [60_000, "1 min"], [600_000, "10 min"], [Infinity, "more"]];

function histogram(times, what) {
  const counts = BUCKETS.map(() => 0);
  for (const time of times) counts[BUCKETS.findIndex(([max]) => time < max)]++;
  const top = Math.max(...counts, 1);
  const width = 420, step = width / counts.length;
  const words = counts.map((count, at) => (count ? count + " below " + BUCKETS[at][1] : null)).filter(Boolean).join(", ");
  return h("svg", { class: "chart histogram", viewBox: "0 0 " + width + " 92", role: "img", "aria-label": what + ": " + (words || "none yet") },
    h("line", { class: "axis", x1: 0, x2: width, y1: 72, y2: 72 }),
    counts.map((count, at) => {
      const height = count ? Math.max(2, 56 * count / top) : 0;
      return [
        h("rect", { class: "held", x: at * step + 4, width: step - 8, y: 72 - height, height, rx: 2 }),
        count ? h("text", { x: (at + 0.5) * step, y: 68 - height, "text-anchor": "middle" }, String(count)) : null,
        h("text", { x: (at + 0.5) * step, y: 86, "text-anchor": "middle" }, (at < counts.length - 1 ? "< " : "") + BUCKETS[at][1]),
      ];
    }));
}

// Times that are good to read, for an axis.
function ticks(from, to, count) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  const step = steps.find(step => (to - from) / step <= count) ?? 864e5 * Math.ceil((to - from) / 864e5 / count);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return [found, step];
}

const ENDS = {
  "released": "released", "removed": "taken away", "session-closed": "its session was closed", "session-expired": "its session expired",
  "reaped": "removed by the server",
};

// Holds of a lock as bars, and who led the ensemble above them, on one axis.
// holds: { from, until, isNow, isUnknown, waited, bad, label }; elections as the server gives them.
function timeline({ holds, elections, from, to, width }) {
  const left = 6, right = 6, room = Math.max(200, width) - left - right;
  const x = time => left + room * Math.max(0, Math.min(1, (time - from) / (to - from || 1)));
  const hasElections = elections.length > 0;
  const top = hasElections ? 34 : 8, lane = 20;
  // Bars that overlap, as those of readers do, are below each other.
  const ends = [];
  for (const hold of holds) {
    let at = ends.findIndex(end => end <= hold.from + 1);
    if (at < 0) at = ends.length < 8 ? ends.length : 7;
    ends[at] = hold.until;
    hold.lane = at;
  }
  const bottom = top + Math.max(1, ends.length) * lane + 4;
  const [marks, step] = ticks(from, to, Math.max(2, Math.floor(room / 110)));
  const parts = [];
  elections.forEach((change, at) => {
    const until = elections[at + 1]?.time_ms ?? to;
    if (until < from) return;
    const begin = x(change.time_ms), wide = Math.max(1, x(until) - begin);
    if (change.leader === null) {
      parts.push(h("rect", { class: "none", x: begin, y: 6, width: wide, height: bottom - 6 }, h("title", {}, "no leader is known, from " + clock(change.time_ms, true) + " for " + duration(until - change.time_ms))));
    } else {
      parts.push(h("rect", { class: "leads", x: begin, y: 6, width: wide, height: 18, rx: 3 }, h("title", {}, "server " + change.leader + " leads in term " + change.term + ", from " + clock(change.time_ms, true))));
      const long = "server " + change.leader + " leads, term " + change.term;
      const short = String(change.leader);
      const text = wide > 6.3 * long.length ? long : wide > 14 ? short : "";
      if (text) parts.push(h("text", { class: "leads-text", x: begin + 6, y: 19 }, text));
    }
    if (change.time_ms >= from) parts.push(h("line", { class: "term", x1: begin, x2: begin, y1: 4, y2: bottom }));
  });
  for (const hold of holds) {
    const y = top + hold.lane * lane;
    if (hold.waited !== null && hold.waited < hold.from) {
      parts.push(h("rect", { class: "waited", x: x(hold.waited), y: y + 13, width: Math.max(0, x(hold.from) - x(hold.waited)), height: 3, rx: 1.5 }));
    }
    const begin = x(hold.from), wide = Math.max(1.5, x(hold.until) - begin);
    const look = hold.isNow ? "held now" : hold.bad ? "bad" : "held";
    parts.push(h("rect", { class: hold.isUnknown ? look + " unknown" : look, x: begin, y: y + 1, width: wide, height: 11, rx: 2 }, h("title", {}, hold.label)));
  }
  const withMillis = step < 1000;
  return h("svg", { class: "chart", viewBox: "0 0 " + (room + left + right) + " " + (bottom + 20), height: bottom + 20, role: "img",
    "aria-label": "Time line from " + clock(from) + " to " + clock(to) + ": " + plural(holds.length, "hold") + (hasElections ? ", " + plural(elections.filter(e => e.leader !== null).length, "leader") : "") },
    h("line", { class: "axis", x1: left, x2: left + room, y1: bottom, y2: bottom }),
    marks.map(mark => [
      h("line", { class: "axis", x1: x(mark), x2: x(mark), y1: bottom, y2: bottom + 4 }),
      h("text", { x: Math.max(24, Math.min(left + room - 26, x(mark))), y: bottom + 16, "text-anchor": "middle" }, clock(mark, withMillis)),
    ]), parts);
}
