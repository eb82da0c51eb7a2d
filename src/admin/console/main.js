// What makes it live: looking every two seconds, what is clicked, and what changes locks.

const INTERVAL = 2000;
let isPaused = false;
let latestLook = 0;
let overviewNow = null;
let answers = {};

function badge(now) {
  const word = !now.serving ? "not serving" : now.mode === "standalone" ? "standalone" : "server " + now.server + ", " + now.mode;
  const box = $("badge");
  box.className = "badge " + (!now.serving ? "bad" : now.conditions.length ? "warn" : "good");
  box.textContent = word;
  $("version").textContent = "Lockkeeper " + now.version;
}

function trouble(words) {
  const box = $("trouble");
  const text = words.filter(Boolean).join(" ");
  if (box.textContent !== text) box.textContent = text;
  box.hidden = !text;
}

function draw() {
  const view = views[place.tab];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.tab === place.tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if ($("title").textContent !== view.title) $("title").textContent = view.title;
  document.title = view.title + " - Lockkeeper";
  const answer = answers[place.tab];
  if (answer === undefined || !overviewNow) return;
  patchChildren($("view"), view.show(answer, overviewNow).flat(2).filter(Boolean));
  const filter = $("filter");
  if (filter && document.activeElement !== filter && filter.value !== place.get("q")) filter.value = place.get("q");
}

// Asks for what the view shows; an answer that is overtaken by a later question is dropped.
async function look() {
  const number = ++latestLook;
  const { tab } = place;
  try {
    const now = await ask("overview");
    sample(now);
    overviewNow = now;
    badge(now);
    const answer = await views[tab].ask();
    if (number !== latestLook || tab !== place.tab) return;
    if (tab === "locks") remember(answer.answer.locks);
    answers[tab] = answer;
    trouble(now.conditions);
    $("state").textContent = "at " + clock(now.time_ms);
    document.body.dataset.looks = String(Number(document.body.dataset.looks ?? 0) + 1);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    if (number === latestLook) trouble([error.message]);
    return;
  }
  draw();
}

let isLooking = false;
async function tick() {
  if (isLooking || isPaused || document.hidden || $("ask").open) return;
  isLooking = true;
  try {
    await look();
  } finally {
    isLooking = false;
  }
}

function navigate() {
  const before = place.tab;
  place.read();
  if (before !== place.tab) {
    $("view").replaceChildren();
    scrollTo(0, 0);
  }
  draw();
  look();
}

async function change(what, button) {
  const { arg: node, token, who } = button.dataset;
  const isBreak = what === "break";
  const form = await dialog(isBreak ? "Take the lock away?" : "Ask it to release the lock?", [
    h("p", {}, h("code", {}, node)), h("p", { class: "soft" }, "Of ", who || "a client without a name", ", token " + token + "."),
    h("p", {}, isBreak ? "Its znode is deleted, and the next contender gets the lock at once. Its client is not stopped by that: it may go on until it looks, or until a resource refuses its token." :
      "The word by which recipes ask a holder to leave is written to its znode. It is up to its client, if that listens at all: kazoo and go-zookeeper do not."),
  ], [["", "Cancel", "", true], ["yes", isBreak ? "Break the lock" : "Ask", isBreak ? "solid" : "", false]]);
  if (!form) return;
  try {
    const done = await ask("locks/" + what + "?node=" + encodeURIComponent(node) + "&token=" + encodeURIComponent(token), { method: "POST", headers: { "X-Lockkeeper-Change": "yes" } });
    say(done.node + ": " + done.done);
    await look();
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    await dialog("That was not done", [h("p", {}, error.message)], [["ok", "Close", "", true]]);
  }
}

const acts = {
  copy: button => copy(button.dataset.arg),
  cancel: () => $("ask").close(""),
  all: button => { place.toggle("all", button.dataset.arg); draw(); },
  line: button => { place.toggle("line", button.dataset.arg); draw(); look(); },
  rest: () => { place.set("rest", "yes"); draw(); },
  expand: button => { expand(button.dataset.arg); draw(); look(); },
  page: button => { pages.set(button.dataset.arg, (pages.get(button.dataset.arg) ?? PAGE) + PAGE); look(); },
  form: button => { place.set("form", button.dataset.arg); draw(); },
  token: async () => { if (await askToken()) look(); },
  break: button => change("break", button),
  revoke: button => change("revoke", button),
};

document.addEventListener("click", event => {
  const button = event.target.closest("[data-act]");
  if (button) acts[button.dataset.act](button);
});

document.addEventListener("input", event => {
  if (event.target.id !== "filter") return;
  place.set("q", event.target.value);
  draw();
  if (place.tab === "locks") look();
});

document.addEventListener("submit", event => {
  if (event.target.dataset.form !== "go") return;
  event.preventDefault();
  const path = $("path").value.trim();
  if (path.startsWith("/")) location.hash = "tree?path=" + encodeURIComponent(path.replace(/(.)\/+$/, "$1"));
});

$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  $("pause").textContent = isPaused ? "Go on" : "Pause";
  if (!isPaused) tick();
});

addEventListener("hashchange", navigate);
addEventListener("resize", draw);
document.addEventListener("visibilitychange", tick);
place.read();
draw();
setInterval(tick, INTERVAL);
tick();
