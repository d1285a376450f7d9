// The page: it follows the server's events, and begins anew with each run of the flow.
"use strict";

const RETRY_MS = 1000;
const SILENT_MS = 3000;

// Columns of text are at the left.
const TEXT_COLUMNS = new Set(["kind", "", "destination", "held back by", "state", "held by", "sync", "writers", "output"]);

const element = (id) => document.getElementById(id);
const token = new URLSearchParams(location.hash.slice(1)).get("token");

const page = { run: null, graph: null, snapshot: null, chosen: null, charts: [], heard: 0, connected: false, hasSections: false, rows: new Map(), stale: null, faults: new Map(), sorted: new Map() };

async function read(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status === 401 || answer.status === 403 ? "token" : `${answer.status}`);
  return answer.json();
}

function state(text, kind) {
  const place = element("state");
  if (place.textContent !== text) place.textContent = text;
  place.className = `state ${kind}`;
}

// A cell of a table: `text` is shown, `value` is kept exactly beside it.
function cell(text, value) {
  return { text, value: value ?? "", kind: "" };
}

function textCell(text) {
  return { text, value: "", kind: "text" };
}

// A figure: zero is quiet.
function unit(name, value) {
  return { ...cell(shown(name, value), value), kind: value === 0 ? "zero" : "" };
}

// The number of things that have failed: zero is quiet, and any other is loud.
function faulty(value) {
  return { ...unit("count", value), kind: value > 0 ? "loud" : "zero" };
}

// Shows cells in a row after its first one. Only what has changed is written: the browser lays out no more than that.
function fill(row, cells) {
  while (row.cells.length <= cells.length) row.insertCell();
  cells.forEach(({ text, value, kind }, index) => {
    const place = row.cells[index + 1];
    if (place.textContent !== text) place.textContent = text;
    if (place.className !== kind) place.className = kind;
    if (String(value) === (place.dataset.value ?? "")) return;
    if (value === "") delete place.dataset.value;
    else place.dataset.value = value;
  });
}

// Fills a table. Rows are `{key, mark, cells, choose}`; those that are there keep their buttons, so that the focus stays.
function table(id, head, rows) {
  const place = element(id);
  if (!place.tHead) {
    const row = place.createTHead().insertRow();
    for (const title of head) {
      const column = document.createElement("th");
      column.scope = "col";
      if (title !== "") column.append(sorter(id, row.cells.length, title));
      if (TEXT_COLUMNS.has(title)) column.className = "text";
      row.append(column);
    }
    place.createTBody();
  }
  const section = element(`${id}-section`);
  if (section) section.hidden = rows.length === 0;
  rows = sorted(id, rows);
  const body = place.tBodies[0];
  const keys = rows.map((row) => row.key).join("\n");
  if (body.dataset.keys !== keys) {
    body.dataset.keys = keys;
    const known = new Map([...body.rows].map((row) => [row.newest.key, row]));
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    body.replaceChildren(...rows.map(({ key, choose }) => known.get(key) ?? titleRow(key, choose)));
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    if (!page.rows.has(id)) page.rows.set(id, new InView(showRow));
    page.rows.get(id).watch([...body.rows]);
  }
  const inView = page.rows.get(id);
  rows.forEach((newest, index) => {
    const row = body.rows[index];
    row.newest = newest;
    // A row that nobody has seen has its cells too: the width of the columns.
    if (row.cells.length === 1 || inView.has(row)) showRow(row);
  });
}

// The head of a column: a click sorts by it, the largest first, then the smallest, then as the server has the rows.
function sorter(id, column, title) {
  const button = line("button", title);
  button.type = "button";
  button.addEventListener("click", () => {
    const now = page.sorted.get(id);
    const first = column === 0 ? "ascending" : "descending";
    const other = column === 0 ? "descending" : "ascending";
    const order = now?.column !== column ? first : now.order === first ? other : null;
    if (order) page.sorted.set(id, { column, order });
    else page.sorted.delete(id);
    [...element(id).tHead.rows[0].cells].forEach((head, index) => {
      if (order && index === column) head.ariaSort = order;
      else head.removeAttribute("aria-sort");
    });
    show();
  });
  return button;
}

// Rows in the order that the reader has chosen. What is not known comes last.
function sorted(id, rows) {
  const chosen = page.sorted.get(id);
  if (!chosen) return rows;
  const value = (row) => {
    if (chosen.column === 0) return row.key;
    const { text, value } = row.cells[chosen.column - 1];
    return value === "" ? (text === "–" ? null : text) : value;
  };
  const sign = chosen.order === "ascending" ? 1 : -1;
  const compare = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), undefined, { numeric: true }));
  const known = rows.filter((row) => value(row) !== null).sort((one, other) => sign * compare(value(one), value(other)));
  return [...known, ...rows.filter((row) => value(row) === null)];
}

// A row of a table with a button in its first cell.
function titleRow(key, choose) {
  const row = document.createElement("tr");
  const first = document.createElement("th");
  first.scope = "row";
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = key;
  button.title = key;
  button.addEventListener("click", choose);
  first.append(button);
  row.append(first);
  return row;
}

function showRow(row) {
  const { mark, cells } = row.newest;
  if (row.className !== (mark ?? "")) row.className = mark ?? "";
  fill(row, cells);
}

function choose(things, title) {
  for (const charts of page.charts) charts.end();
  page.charts = [];
  page.chosen = { things, title };
  element("detail").hidden = false;
  element("detail-title").textContent = title;
  for (const { kind, name } of things) {
    const charts = new Charts(element("charts"), kind, name);
    page.charts.push(charts);
    read(`api/history.json?of=${kind}&name=${encodeURIComponent(name)}`)
      .then((history) => { if (page.charts.includes(charts)) charts.begin(history); })
      .catch(() => {});
  }
  element("detail").scrollIntoView({ block: "nearest" });
  show();
}

function close() {
  for (const charts of page.charts) charts.end();
  page.charts = [];
  page.chosen = null;
  element("detail").hidden = true;
  show();
}

// Everything that is known of a step: its own series, those of its input and of its output.
function chooseStep(index) {
  const step = page.snapshot?.steps[index];
  if (!step) return;
  const things = [{ kind: "step", name: step.name }];
  if (step.kind === "source") things.push({ kind: "source", name: step.name });
  if (page.snapshot.sinks.some((sink) => sink.name === step.name)) things.push({ kind: "sink", name: step.name });
  choose(things, step.name);
}

// The values of the series of a thing, as the history has them.
function values(snapshot, { kind, name }) {
  const named = (list) => list.find((one) => one.name === name) ?? {};
  if (kind === "step") {
    const step = named(snapshot.steps);
    return { ...step, ...(step.ages ?? {}) };
  }
  if (kind === "source") return named(snapshot.sources);
  if (kind === "sink") return named(snapshot.sinks);
  if (kind === "worker") return snapshot.workers[Number(name)] ?? {};
  if (kind !== "epochs") return sectionValues(snapshot, kind, name);
  const epochs = snapshot.epochs ?? { last_seconds: [] };
  const [waiting, saving, syncing] = epochs.last_seconds;
  return { waiting, saving, syncing, bytes: epochs.last_bytes, age: epochs.age_seconds };
}

function showFacts(snapshot) {
  const sources = snapshot.steps.filter((step) => step.kind === "source");
  const busiest = Math.max(0, ...snapshot.workers.map((worker) => worker.busy));
  const facts = [
    [["ended", "failed"].includes(snapshot.state) ? "ran for" : "running for", duration(snapshot.seconds)],
    ["read", shown("rate", sources.every((step) => step.out_rate === null) ? null : sources.reduce((sum, step) => sum + step.out_rate, 0))],
    ...(snapshot.missing ? [["missing", snapshot.missing.map((number) => `process ${number}`).join(", ")]] : []),
    ...(snapshot.processes ? [["processes", String(snapshot.processes.length)]] : []),
    ...(snapshot.workers.length > 0 ? [["workers", String(snapshot.workers.length)], ["busiest worker", shown("share", busiest)]] : []),
  ];
  setFacts("facts", facts);
}

// What needs attention by what it is of: the worst condition of each, and the step that the error of a failed flow names.
function faultsOf({ conditions, down, steps }) {
  const faults = new Map();
  for (const one of conditions) {
    const name = `${one.kind} ${one.subject}`;
    if (!faults.has(name)) faults.set(name, one);
  }
  const named = ({ name }) => STEP_KINDS.some((kind) => down.error.includes(`${kind} "${name}"`));
  const fatal = down && steps.find(named);
  if (fatal) faults.set(`step ${fatal.name}`, { severity: "critical", words: down.error });
  return faults;
}

// The worst condition of a thing, which is of one of these kinds.
function faultOf(kinds, name) {
  return kinds.map((kind) => page.faults.get(`${kind} ${name}`)).find(Boolean);
}

const STEP_KINDS = ["step", "source", "sink"];

function rowMark(kinds, name, mark = "") {
  return [mark, faultOf(kinds, name)?.severity ?? ""].filter(Boolean).join(" ");
}

function setFacts(id, facts) {
  const key = JSON.stringify(facts);
  if (element(id).dataset.key === key) return;
  element(id).dataset.key = key;
  element(id).replaceChildren(...facts.map(([name, value]) => {
    const group = document.createElement("div");
    const term = document.createElement("dt");
    const description = document.createElement("dd");
    term.textContent = name;
    description.textContent = value;
    group.append(term, description);
    return group;
  }));
}

// The sentence about a flow that needs no attention, and its colour.
function healthy(snapshot) {
  if (snapshot.waiting) return [`${snapshot.waiting}.`, ""];
  if (snapshot.state === "starting") return ["The flow starts: not every connector is open.", ""];
  if (snapshot.state === "ending") return [`The flow has been ending for ${duration(snapshot.ending_seconds)}.`, ""];
  if (snapshot.state === "ended") return ["The flow has ended.", ""];
  if (snapshot.sources_paused) return ["Sources pause at the moment: much is in flight.", ""];
  return ["No step limits this flow: it processes what its sources deliver.", "good"];
}

// What a worker does that has been inside one call of a step for seconds.
function stackOf({ name, subject, process }) {
  if (name === "MillstreamFlowDown") return page.snapshot.down?.traceback ?? null;
  if (name === "MillstreamServiceStuck") return page.snapshot.services.services.find((one) => one.name === subject)?.call?.stack ?? null;
  if (name !== "MillstreamWorkerStuck" && name !== "MillstreamStepSaturated") return null;
  const inside = page.snapshot.workers.filter((worker) => worker.step === subject && (worker.process || undefined) === process);
  return inside.find((worker) => worker.stack)?.stack ?? null;
}

// Says what needs attention in one part of the page, or that nothing does.
function showVerdict(sentence, list, conditions, [text, kind]) {
  const [first] = conditions;
  const words = (one) => (one.process === undefined ? one.words : `Process ${one.process}: ${one.words}`);
  setText(sentence, first ? words(first) : text);
  const name = `verdict ${first ? first.severity : kind}`;
  if (sentence.className !== name) sentence.className = name;
  const lines = conditions.map((one, index) => [
    one.severity, index > 0 ? words(one) : "", `since ${CLOCK.format(one.since_ms)} · ${one.name}`, one.action, stackOf(one),
  ]);
  const key = JSON.stringify(lines);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.hidden = lines.length === 0;
  list.replaceChildren(...lines.map(([severity, text, since, action, stack]) => {
    const item = line("li", "", severity);
    item.append(line("span", `${severity}, ${since}`, "quiet-line"));
    if (text) item.append(line("strong", text, "error"));
    const remedy = line("span", "", "remedy");
    // Every second part stands between back quotes.
    remedy.append(...action.split("`").map((part, at) => line(at % 2 ? "code" : "span", part)));
    item.append(remedy);
    // It scrolls, so that the keyboard reaches it.
    if (stack) item.append(Object.assign(line("pre", stack), { tabIndex: 0 }));
    return item;
  }));
}

// Nothing was heard for a while: what is shown is of then, and nothing is green.
function silence(text) {
  state(text, "lost");
  if (!page.heard) return;
  document.body.classList.add("silent");
  for (const place of document.querySelectorAll(".verdict")) {
    setText(place, `No news since ${CLOCK.format(page.heard)}: the figures are those of then.`);
    place.className = "verdict";
  }
}

function showSteps(snapshot) {
  element("graph-section").hidden = snapshot.steps.length === 0;
  const head = ["step", "kind", "", "in/s", "out/s", "busy", "skew", "p50", "p99", "p99.9", "keys", "state", "skipped", "dead letters", "late", "faults", "items in", "items out"];
  table("steps", head, snapshot.steps.map((step, index) => ({
    key: step.name,
    mark: rowMark(STEP_KINDS, step.name, step.mark === "none" ? "" : step.mark),
    choose: () => chooseStep(index),
    cells: [
      textCell(step.kind), textCell(MARKS[step.mark]), unit("rate", step.in_rate), unit("rate", step.out_rate), unit("share", step.busy),
      cell(step.skew.toFixed(1), step.skew), unit("seconds", step.ages?.p50), unit("seconds", step.ages?.p99), unit("seconds", step.ages?.p999),
      unit("count", step.keys), unit("bytes", step.state_bytes),
      faulty(step.skipped - step.dead_letters), faulty(step.dead_letters), faulty(step.late), faulty(step.faults), unit("count", step.items_in), unit("count", step.items_out),
    ],
  })));
}

function showSources(snapshot) {
  const head = ["source", "lag, records", "lag, bytes", "lag, time", "in open transactions", "watermark lag", "held back by", "partitions"];
  table("sources", head, snapshot.sources.map((source) => ({
    key: source.name,
    mark: rowMark(["source"], source.name),
    choose: () => choose([{ kind: "source", name: source.name }], source.name),
    cells: [
      unit("count", source.lag_records), unit("bytes", source.lag_bytes), unit("seconds", source.lag_seconds),
      unit("count", source.withheld_records), unit("seconds", source.watermark_lag_seconds), textCell(source.held_by ?? "–"), unit("count", source.partitions.length || null),
    ],
  })));
}

function showSinks(snapshot) {
  const head = ["sink", "destination", "waiting, records", "waiting, bytes", "oldest", "delivered", "refused", "failed in a row", "retries", "last delivery"];
  table("sinks", head, snapshot.sinks.map((sink) => ({
    key: sink.name,
    mark: rowMark(["sink"], sink.name),
    choose: () => choose([{ kind: "sink", name: sink.name }], sink.name),
    cells: [
      textCell(sink.address), unit("count", sink.waiting_records), unit("bytes", sink.waiting_bytes), unit("seconds", sink.waiting_seconds),
      unit("count", sink.delivered_records), faulty(sink.refused_records), faulty(sink.failures_in_a_row), faulty(sink.retries), unit("seconds", sink.since_delivery_seconds),
    ],
  })));
}

// The counters and gauges of the user's program.
function showUser(snapshot) {
  const metrics = snapshot.user ?? [];
  element("user-section").hidden = metrics.length === 0;
  setFacts("user", metrics.map((one) => [one.name, shown("count", one.value)]));
}

function showEpochs(snapshot) {
  const epochs = snapshot.epochs;
  element("epochs-section").hidden = !epochs;
  if (!epochs) return;
  const head = ["epoch", "commits", "last commit: waiting", "saving", "syncing", "bytes", "last commit", "last epoch", "length"];
  const [waiting, saving, syncing] = epochs.last_seconds;
  table("epochs", head, [{
    key: "epochs",
    mark: rowMark(["epochs"], "epochs"),
    choose: () => choose([{ kind: "epochs", name: "epochs" }], "Epochs"),
    cells: [
      unit("count", epochs.commits), unit("seconds", waiting), unit("seconds", saving), unit("seconds", syncing),
      unit("bytes", epochs.last_bytes), unit("seconds", epochs.since_commit_seconds), unit("seconds", epochs.age_seconds), unit("seconds", epochs.length_seconds),
    ],
  }]);
  showCommits(snapshot);
}

// The last commits, and the restarts, each of which has abandoned the epoch that ran.
function showCommits(snapshot) {
  const committed = (snapshot.commits ?? []).map(({ epoch, time_ms, bytes, seconds: [waiting, saving, syncing] }) => [time_ms, [
    textCell(`epoch ${epoch}`), textCell(MOMENT.format(time_ms)), textCell("committed"), unit("seconds", waiting), unit("seconds", saving), unit("seconds", syncing), unit("bytes", bytes),
  ]]);
  const abandoned = snapshot.restarts.map(({ time_ms, cause }) => [time_ms, [
    textCell("–"), textCell(MOMENT.format(time_ms)), { ...contentCell(`not committed: ${cause}`), kind: "content loud" }, textCell("–"), textCell("–"), textCell("–"), textCell("–"),
  ]]);
  const rows = [...committed, ...abandoned].sort(([one], [other]) => other - one).slice(0, 20).map(([, cells]) => cells);
  if (rows.length === 0) return;
  listed(element("commits"), "last-commits", "Last epochs", [["epoch", ""], ["ended", "text"], ["outcome", "text"], ["waiting", ""], ["saving", ""], ["syncing", ""], ["bytes", ""]], rows);
}

function showProcesses(snapshot) {
  const processes = snapshot.processes ?? [];
  const head = ["process", "state", "read", "busiest worker", "items in flight", "last news"];
  table("processes", head, processes.map((one) => ({
    key: `process ${one.process}`,
    mark: rowMark(["process"], String(one.process)),
    choose: () => {
      const workers = snapshot.workers.filter((worker) => worker.process === one.process);
      choose(workers.map((worker) => ({ kind: "worker", name: String(worker.worker) })), `Workers of process ${one.process}`);
    },
    cells: [
      textCell(one.state === "unknown" ? "no news: it has no page" : one.state), unit("rate", one.read_rate), unit("share", one.busy),
      unit("count", one.in_flight_items), unit("seconds", one.silent_seconds),
    ],
  })));
}

function showWorkers(snapshot) {
  const head = ["worker", "busy", "items in flight", "last news", "thread"];
  table("workers", head, snapshot.workers.map((worker) => ({
    key: worker.process === undefined ? String(worker.worker) : `${worker.worker} (process ${worker.process})`,
    choose: () => choose([{ kind: "worker", name: String(worker.worker) }], `Worker ${worker.worker}`),
    cells: [unit("share", worker.busy), unit("count", worker.in_flight_items), unit("seconds", worker.silent_seconds), cell(String(worker.thread ?? "–"), worker.thread)],
  })));
}

function detailText(snapshot) {
  const things = page.chosen?.things ?? [];
  const step = things.length > 0 && things[0].kind === "step" ? snapshot.steps.find((one) => one.name === things[0].name) : null;
  if (!step) return "";
  const node = page.graph?.nodes.find((one) => one.name === step.name);
  const detail = node?.detail ? `, ${node.detail}` : "";
  return `${step.kind}${detail}. Busy ${shown("share", step.busy)}; the busiest worker has ${step.skew.toFixed(1)} times the load of the mean. ${human(step.items_in)} items in and ${human(step.items_out)} out since the start.`;
}

function conditionsOf(part) {
  return page.snapshot.conditions.filter((one) => one.part === part);
}

function show() {
  const snapshot = page.snapshot;
  if (!snapshot) return;
  page.faults = faultsOf(snapshot);
  setFacts("about", snapshot.about ?? []);
  showSections(snapshot);
  showActions(snapshot);
  if (!snapshot.flow && page.hasSections) {
    document.body.dataset.time = snapshot.time_ms;
    return;
  }
  const title = snapshot.flow || "Millstream";
  element("flow").textContent = title;
  document.title = snapshot.bottleneck?.step ? `${title}: ${snapshot.bottleneck.step} limits it` : title;
  showFacts(snapshot);
  showVerdict(element("verdict"), element("conditions"), conditionsOf("flow"), healthy(snapshot));
  const first = page.chosen?.things[0];
  const chosen = first && first.kind !== "worker" && first.kind !== "epochs" ? snapshot.steps.findIndex((step) => step.name === first.name) : -1;
  page.graph?.drawn.show(snapshot.steps, chosen, (name) => faultOf(STEP_KINDS, name));
  page.graph?.drawn.showEdges(snapshot.edges);
  showNotes(snapshot);
  showSteps(snapshot);
  showSources(snapshot);
  showSinks(snapshot);
  showUser(snapshot);
  showEpochs(snapshot);
  showProcesses(snapshot);
  showWorkers(snapshot);
  element("detail-text").textContent = detailText(snapshot);
  document.body.dataset.time = snapshot.time_ms;
}

// Another run: its graph may have changed, and its history has begun anew.
async function beginRun(run) {
  page.run = run;
  const graph = await read("api/graph.json");
  if (page.run !== run) return;
  if (!graph) {
    page.stale = page.chosen;
    return;
  }
  const drawn = new Graph(element("graph"), graph, chooseStep);
  page.graph = { nodes: graph.nodes, drawn };
  if (page.chosen) {
    const { things, title } = page.chosen;
    const known = things.every(({ kind, name }) => kind === "worker" || kind === "epochs" || graph.nodes.some((node) => node.name === name));
    if (known) choose(things, title);
    else close();
  }
  show();
}

function hear(event) {
  const snapshot = JSON.parse(event.data);
  page.heard = Date.now();
  page.snapshot = snapshot;
  document.body.classList.remove("silent");
  document.body.classList.toggle("down", Boolean(snapshot.down));
  state(snapshot.state, `${snapshot.state} ${snapshot.conditions[0]?.severity ?? ""}`);
  if (snapshot.run !== page.run && snapshot.run) beginRun(snapshot.run).catch(() => { page.run = null; });
  for (const charts of page.charts) charts.add(snapshot.time_ms, values(snapshot, charts));
  show();
}

function connect() {
  const events = new EventSource(token ? `events?token=${encodeURIComponent(token)}` : "events");
  events.onmessage = hear;
  events.onerror = () => {
    events.close();
    silence("no connection: retrying");
    read("api/snapshot.json").catch((error) => {
      if (error.message === "token") state("a token is needed: open this page as /#token=TOKEN", "lost");
    });
    setTimeout(connect, RETRY_MS);
  };
}

element("detail-close").addEventListener("click", close);
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && page.chosen) close(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const charts of page.charts) charts.redraw();
});
addEventListener("resize", () => {
  for (const charts of page.charts) charts.resize();
  page.graph?.drawn.fit();
});
setInterval(() => {
  if (page.heard && Date.now() - page.heard > SILENT_MS && element("state").textContent !== "no connection: retrying") {
    silence(`no news for ${Math.round((Date.now() - page.heard) / 1000)} s`);
  }
}, 1000);
connect();
