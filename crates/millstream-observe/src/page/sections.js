// The parts of the page besides a flow: queues, journals, services. A process has some of them, or none.
"use strict";

const make = (kind, properties, ...children) => {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
};

// A titled table that scrolls; `id` is that of the table.
function framed(id, title, level = "h2") {
  const heading = make(level, { id: `${id}-title`, textContent: title });
  const place = make("div", { className: "scroll", tabIndex: 0 }, make("table", { id }));
  place.setAttribute("role", "region");
  place.setAttribute("aria-label", `Table of ${title.toLowerCase()}`);
  return [heading, place];
}

// One part of the page: `begin` makes its elements, `show` fills them.
class Part {
  constructor(key) {
    this.place = make("section", { id: `${key}-part`, className: "part" });
    this.place.setAttribute("aria-labelledby", `${key}-title`);
    element("sections").append(this.place);
    this.key = key;
    this.attention = make("p", { className: "verdict", id: `${key}-attention` });
    this.attention.setAttribute("role", "status");
    this.conditions = make("ul", { className: "notes conditions", id: `${key}-conditions`, hidden: true });
    this.conditions.setAttribute("aria-label", "What needs attention");
    this.extra = make("div", { id: `${key}-extra` });
  }

  say(healthy, kind = "good") {
    showVerdict(this.attention, this.conditions, conditionsOf(this.key), [healthy, kind]);
  }
}

// A search field with the number of what was found; `changed` is called with the text.
function search(id, label, changed) {
  const input = make("input", { id, type: "search", autocomplete: "off", spellcheck: false });
  const note = make("span", { id: `${id}-note`, className: "quiet" });
  note.setAttribute("role", "status");
  input.addEventListener("input", () => changed(input.value));
  return { input, note, row: make("div", { className: "search" }, make("label", { htmlFor: id, textContent: label }), input, note) };
}

// The table of a detail: `rows` are lists of cells, of which the first one names the row.
function listed(place, id, title, head, rows) {
  if (!element(id)) place.append(...framed(id, title, "h3"));
  const shownAt = element(id);
  const keys = rows.map((row) => row[0].text).join("\n");
  if (shownAt.dataset.keys !== keys || !shownAt.tHead) {
    shownAt.dataset.keys = keys;
    const top = make("tr", {}, ...head.map(([name, kind]) => make("th", { scope: "col", textContent: name, className: kind })));
    shownAt.replaceChildren(make("thead", {}, top), make("tbody", {}, ...rows.map(([first]) => make("tr", {}, make("th", { scope: "row", textContent: first.text })))));
  }
  rows.forEach(([, ...cells], index) => fill(shownAt.tBodies[0].rows[index], cells));
}

function contentCell(text) {
  return { text, value: "", kind: "content" };
}

// Bytes as text where they are text, else in hexadecimal.
function content({ text, hex, is_whole: whole }) {
  const shownText = text ?? hex.replace(/(..)(?=.)/g, "$1 ");
  return contentCell(whole ? shownText : `${shownText} …`);
}

const STATES = { good: "", unread: "no client takes items", stuck: "a client keeps an item" };
const QUEUE_HEAD = ["queue", "", "items", "oldest", "open", "held for", "held by", "waiting clients", "in/s", "out/s", "expired/s", "bytes", "on disk", "in", "out", "refused", "failed", "sync"];

class QueuesPart extends Part {
  constructor() {
    super("queues");
    this.search = search("queue-search", "Search", () => this.find());
    const [title, place] = framed("queues", "Queues");
    this.place.append(title, this.attention, this.conditions, this.search.row, place, this.extra);
    this.found = null;
  }

  // Searches on the server: there may be ten thousand queues.
  find() {
    const text = this.search.input.value;
    if (text === "") {
      this.found = null;
      if (page.snapshot?.queues) this.table(page.snapshot.queues);
      return;
    }
    read(`api/queues.json?search=${encodeURIComponent(text)}`).then((found) => {
      if (this.search.input.value !== text) return;
      this.found = found;
      if (page.snapshot?.queues) this.table(page.snapshot.queues);
    }).catch(() => {});
  }

  table(queues) {
    const rows = this.found?.queues ?? queues.queues;
    const count = this.found?.count ?? queues.count;
    setText(this.search.note, count > rows.length ? `${rows.length} of ${count}` : `${count} in all`);
    table("queues", QUEUE_HEAD, rows.map((queue) => ({
      key: queue.name,
      mark: rowMark(["queue"], queue.name),
      choose: () => choose([{ kind: "queue", name: queue.name }], queue.name),
      cells: [
        textCell(STATES[queue.state]), unit("count", queue.items), unit("seconds", queue.items ? queue.oldest_seconds : null), unit("count", queue.open_items),
        unit("seconds", queue.open_items ? queue.held_seconds : null), textCell(queue.held_by ?? "–"), unit("count", queue.waiters),
        unit("rate", queue.in_rate), unit("rate", queue.out_rate), unit("rate", queue.expired_rate), unit("bytes", queue.bytes), unit("bytes", queue.disk_bytes),
        unit("count", queue.in_items), unit("count", queue.out_items), faulty(Object.values(queue.refused).reduce((all, one) => all + one, 0)), faulty(queue.failed_items), textCell(queue.sync),
      ],
    })));
  }

  facts(queues) {
    const sync = queues.latencies.find((one) => one.name === "sync");
    return [
      ["server", queues.status], ["queues", human(queues.count)], ["items", human(queues.total.items)],
      ["in", shown("rate", queues.total.in_rate)], ["out", shown("rate", queues.total.out_rate)], ["clients", human(queues.connections)],
      ["sync p50", shown("seconds", sync?.p50)], ["sync p99", shown("seconds", sync?.p99)],
    ];
  }

  show(queues) {
    this.say(queues.leader === null ? "Every queue is read, or empty." : `This machine follows ${queues.leader}, which serves the queues.`);
    if (this.search.input.value !== "") this.find();
    this.table(queues);
    this.extra.hidden = queues.closed.length === 0;
    if (queues.closed.length > 0) {
      listed(this.extra, "closed-queues", "Queues that could not be opened", [["queue", ""], ["reason", "text"]],
        queues.closed.map(({ name, reason }) => [textCell(name), contentCell(reason)]));
    }
  }

  // The clients that have items open, and the first items.
  detail(place, name) {
    if (Object.keys(this.values(page.snapshot.queues, name)).length === 0) return Promise.resolve();
    return read(`api/queue.json?name=${encodeURIComponent(name)}`).then((answer) => {
      if (!chosenIs("queue", name)) return;
      this.redrive(place, name);
      listed(place, "holders", "Clients with open items", [["connection", ""], ["client", "text"], ["open items", ""], ["oldest item", ""], ["open for", ""]],
        answer.holders.map((one) => [textCell(String(one.connection)), textCell(one.peer), unit("count", one.items), unit("count", one.oldest), unit("seconds", one.held_seconds)]));
      if (!answer.items_are_shown) return;
      const items = [...(answer.open ?? []), ...(answer.waiting ?? [])];
      const state = (item) => (item.peer === null ? "waits" : `open: ${item.peer}`);
      listed(place, "items", "First items", [["item", ""], ["state", "text"], ["age", ""], ["expires in", ""], ["failed", ""], ["bytes", ""], ["content", "text"]],
        items.map((item) => [
          textCell(String(item.id)), textCell(state(item)), unit("seconds", item.age_seconds), unit("seconds", item.expires_in_seconds), unit("count", item.deliveries),
          unit("count", item.bytes), content(item),
        ]));
    });
  }

  // For a reader with the token: moves the oldest items of this queue to another one.
  redrive(place, name) {
    if (element("redrive") || !token || !page.snapshot.actions.includes("redrive")) return;
    const to = make("input", { id: "redrive-to", type: "text", required: true, autocomplete: "off", spellcheck: false });
    const max = make("input", { id: "redrive-max", type: "number", min: 1, max: 1000, value: 1000 });
    const outcome = make("span", { id: "redrive-outcome" });
    outcome.setAttribute("role", "status");
    const form = make("form", { id: "redrive", className: "search" }, make("label", { htmlFor: "redrive-to", textContent: "Move items to queue" }), to,
      make("label", { htmlFor: "redrive-max", textContent: "at most" }), max, make("button", { type: "submit", textContent: "Redrive" }), outcome);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const query = new URLSearchParams({ from: name, to: to.value, max: max.value || "1000" });
      ask(`redrive?${query}`, outcome, (answer) => `${answer.moved} items moved from ${answer.from} to ${answer.to}.`);
    });
    place.append(form);
  }

  values(queues, name) {
    return queues.queues.find((one) => one.name === name) ?? this.found?.queues.find((one) => one.name === name) ?? {};
  }
}

const KINDS = { journal: "journal", copy: "copy of a follower", state: "state of a flow", queue: "queue" };
const JOURNAL_STATES = { good: "", superseded: "another copy leads", lagging: "a follower lags", unreadable: "cannot be read" };
const JOURNAL_HEAD = ["journal", "kind", "", "records/s", "bytes/s", "records", "from", "next", "not durable", "newest", "cursor lag", "follower lag", "items", "oldest item", "segments", "on disk", "writers", "term"];
const CURSOR_HEAD = [["cursor", ""], ["kind", "text"], ["next record", ""], ["lag, records", ""], ["lag, time", ""]];
const RECORD_HEAD = [["record", ""], ["time", "text"], ["bytes", ""], ["content", "text"]];

class JournalsPart extends Part {
  constructor() {
    super("journals");
    this.search = search("journal-search", "Search", () => this.find());
    const [title, place] = framed("journals", "Journals");
    this.place.append(title, this.attention, this.conditions, this.search.row, place);
    this.found = null;
    this.at = { from: null, timeMs: null };
    this.form = "decoded";
  }

  find() {
    const text = this.search.input.value;
    if (text === "") {
      this.found = null;
      if (page.snapshot?.journals) this.table(page.snapshot.journals);
      return;
    }
    read(`api/journals.json?search=${encodeURIComponent(text)}`).then((found) => {
      if (this.search.input.value !== text) return;
      this.found = found;
      if (page.snapshot?.journals) this.table(page.snapshot.journals);
    }).catch(() => {});
  }

  table(journals) {
    const rows = this.found?.journals ?? journals.journals;
    const count = this.found?.count ?? journals.count;
    setText(this.search.note, count > rows.length ? `${rows.length} of ${count}` : `${count} in all`);
    table("journals", JOURNAL_HEAD, rows.map((journal) => ({
      key: journal.name,
      mark: rowMark(["journal"], journal.name),
      choose: () => this.choose(journal.name),
      cells: [
        textCell(KINDS[journal.kind]), textCell(JOURNAL_STATES[journal.state]), unit("rate", journal.record_rate), cell(`${shown("bytes", journal.byte_rate)}/s`, journal.byte_rate),
        unit("count", journal.next - journal.first), unit("count", journal.first), unit("count", journal.next), unit("count", journal.next - journal.durable),
        unit("seconds", journal.age_seconds), unit("count", journal.cursor_lag), unit("count", journal.follower_lag), unit("count", journal.items),
        unit("seconds", journal.oldest_seconds), unit("count", journal.segments), unit("bytes", journal.disk_bytes), textCell(journal.writers.join(", ") || "–"), unit("count", journal.term),
      ],
    })));
  }

  choose(name) {
    this.at = { from: null, timeMs: null };
    choose([{ kind: "journal", name }], name);
  }

  facts(journals) {
    return [
      ["journals", human(journals.count)], ["records", shown("rate", journals.record_rate)], ["appended", `${shown("bytes", journals.byte_rate)}/s`],
      ["on disk", shown("bytes", journals.disk_bytes)],
    ];
  }

  show(journals) {
    const count = (number) => number.toLocaleString("en");
    if (journals.read === null) this.say("All journals can be read, and followers keep up.");
    else this.say(`The journals are read for the first time: ${count(journals.read)} of ${count(journals.found)}.`, "");
    if (this.search.input.value !== "") this.find();
    this.table(journals);
  }

  // The controls of the browser of records: a number, a time, and how contents are shown.
  controls(place, name) {
    if (element("record-controls")) return;
    const go = (at) => {
      this.at = at;
      this.detail(place, name).catch(() => {});
    };
    const field = (id, label, type, changed) => {
      const input = make("input", { id, type, autocomplete: "off" });
      if (type === "datetime-local") input.step = "1";
      if (type === "number") input.min = "0";
      input.addEventListener("change", () => changed(input.value));
      return [make("label", { htmlFor: id, textContent: label }), input];
    };
    const button = (text, act) => {
      const made = make("button", { type: "button", textContent: text });
      made.addEventListener("click", act);
      return made;
    };
    const form = make("select", { id: "record-form" }, ...["decoded", "text", "hex"].map((value) => make("option", { value, textContent: value })));
    form.addEventListener("change", () => {
      this.form = form.value;
      this.detail(place, name).catch(() => {});
    });
    place.append(
      make("h3", { textContent: "Records" }),
      make("div", { id: "record-controls", className: "search" },
        ...field("record-from", "From record", "number", (value) => go(value === "" ? { from: null, timeMs: null } : { from: Number(value), timeMs: null })),
        ...field("record-time", "From time", "datetime-local", (value) => go(value === "" ? { from: null, timeMs: null } : { from: null, timeMs: new Date(value).getTime() })),
        button("Earlier", () => go({ from: Math.max(this.first, this.from - 50), timeMs: null })),
        button("Later", () => go({ from: Math.min(this.from + 50, this.next), timeMs: null })),
        button("Newest", () => go({ from: null, timeMs: null })),
        make("label", { htmlFor: "record-form", textContent: "as" }), form,
        make("span", { id: "record-note", className: "quiet" })));
  }

  detail(place, name) {
    const journal = this.of(page.snapshot.journals, name);
    if (!journal) return Promise.resolve();
    if (journal.error) setText(element("detail-text"), journal.error);
    else setText(element("detail-text"), journal.path);
    listed(place, "cursors", "Cursors and followers", CURSOR_HEAD, journal.cursors.map((one) => [
      textCell(one.name), textCell(one.counts ? "follower" : one.is_follower ? "follower, does not count" : "cursor"), unit("count", one.position), unit("count", one.lag_records), unit("seconds", one.lag_seconds),
    ]));
    const where = this.at.from !== null ? `&from=${this.at.from}` : this.at.timeMs !== null ? `&time_ms=${this.at.timeMs}` : "";
    return read(`api/records.json?journal=${encodeURIComponent(name)}${where}`).then((answer) => {
      if (!chosenIs("journal", name)) return;
      this.controls(place, name);
      if (answer.error) {
        setText(element("record-note"), answer.error);
        return;
      }
      ({ first: this.first, next: this.next, from: this.from } = answer);
      const last = this.from + answer.records.length - 1;
      setText(element("record-note"), answer.records.length > 0 ? `records ${this.from} to ${last} of ${this.first} to ${this.next - 1}` : "no records");
      listed(place, "records", "Contents", RECORD_HEAD, answer.records.map((one) => [
        textCell(String(one.sequence)), textCell(new Date(one.time_ms).toISOString().replace("T", " ").replace("Z", "")), unit("count", one.bytes), this.content(one),
      ]));
    });
  }

  content(record) {
    if (this.form === "hex") return content({ ...record, text: null });
    if (this.form === "decoded" && record.decoded) return contentCell(record.decoded);
    return content(record);
  }

  of(journals, name) {
    return journals.journals.find((one) => one.name === name) ?? this.found?.journals.find((one) => one.name === name);
  }

  values(journals, name) {
    const journal = this.of(journals, name);
    if (!journal) return {};
    return { ...journal, not_durable: journal.next - journal.durable };
  }
}

const SERVICE_STATES = { good: "", starting: "starts", lagging: "does not keep up", stuck: "", down: "its process does not run" };
const SERVICE_HEAD = ["service", "", "busy", "calls/s", "calls", "ticks", "skipped", "dead letters", "lag, records", "lag, time", "output", "out/s", "records out"];
const LINE_HEAD = [["record", ""], ["content", "text"]];

// The call that a service has been in for seconds, in words.
function longCall({ method, input, record, seconds }) {
  return `inside ${method === null ? "a call" : `${method}()`} with record ${record} of ${input} for ${seconds} s`;
}

class ServicesPart extends Part {
  constructor() {
    super("services");
    const [title, place] = framed("services", "Services");
    this.place.append(title, this.attention, this.conditions, place, this.extra);
  }

  facts(services) {
    const sum = (of) => services.services.reduce((all, one) => all + of(one), 0);
    const known = services.services.some((one) => one.call_rate !== null);
    return [["calls", shown("rate", known ? sum((one) => one.call_rate) : null)], ["dead letters", human(sum((one) => one.dead_letters))]];
  }

  show(services) {
    this.say("Every service takes its inputs as they come.");
    table("services", SERVICE_HEAD, services.services.map((one) => ({
      key: one.name,
      mark: rowMark(["service"], one.name, one.call ? "cause" : one.state === "starting" ? "waiting" : ""),
      choose: () => choose([{ kind: "service", name: one.name }], one.name),
      cells: [
        textCell(one.error ?? (one.call ? longCall(one.call) : SERVICE_STATES[one.state])), unit("share", one.busy), unit("rate", one.call_rate), unit("count", one.calls), unit("count", one.ticks), faulty(one.skipped),
        faulty(one.dead_letters), unit("count", one.inputs.reduce((all, input) => all + input.lag_records, 0)),
        unit("seconds", Math.max(0, ...one.inputs.map((input) => input.lag_seconds))), textCell(one.output ?? "–"), unit("rate", one.output_rate), unit("count", one.output_next),
      ],
    })));
    this.extra.hidden = services.processes.length === 0;
    if (this.extra.hidden) return;
    const runs = (process) => services.services.filter((one) => one.process === process.name).map((one) => one.name).join(", ");
    listed(this.extra, "service-processes", "Processes of the system", [["process", ""], ["state", "text"], ["services", "text"], ["process id", "text"], ["restarts", ""], ["last error", "text"]],
      services.processes.map((process) => [
        textCell(process.name), textCell(process.state), textCell(runs(process) || "–"), textCell(process.pid === null ? "–" : String(process.pid)), faulty(process.restarts),
        contentCell(process.error ?? "–"),
      ]));
  }

  lines(place, id, title, lines) {
    if (lines.length === 0 && !element(id)) return;
    listed(place, id, title, LINE_HEAD, lines.map((line) => {
      const [number, ...rest] = line.split(": ");
      return [textCell(number), contentCell(rest.join(": "))];
    }));
  }

  detail(place, name) {
    const one = page.snapshot.services.services.find((service) => service.name === name);
    if (!one) return;
    if (!element("service-stack")) place.append(make("pre", { id: "service-stack", tabIndex: 0 }));
    element("service-stack").hidden = !one.call;
    if (one.call) setText(element("service-stack"), `${longCall(one.call)}\n${one.call.stack ?? ""}`);
    this.lines(place, "last-dead-letters", "Last dead letters", one.last_dead_letters);
    listed(place, "service-inputs", "Inputs", [["input", ""], ["next record", ""], ["lag, records", ""], ["lag, time", ""]],
      one.inputs.map((input) => [textCell(input.name), unit("count", input.position), unit("count", input.lag_records), unit("seconds", input.lag_seconds)]));
    listed(place, "methods", "Methods", [["method", ""], ["calls/s", ""], ["calls read", ""]],
      one.methods.map((method) => [textCell(method.name), unit("rate", method.rate), unit("count", method.calls)]));
    if (one.hops.length > 0) {
      listed(place, "hops", "Latency of the newest 500 outputs, by hop", [["hop", ""], ["part", "text"], ["p50", ""], ["p99", ""], ["slowest", ""]],
        one.hops.map((hop) => [textCell(`${hop.from} → ${hop.to}, ${hop.part}`), textCell(hop.part), unit("seconds", hop.p50_seconds), unit("seconds", hop.p99_seconds), unit("seconds", hop.max_seconds)]));
    }
    this.lines(place, "last-calls", "Last calls", one.last_calls);
    this.lines(place, "last-outputs", "Last outputs", one.last_outputs);
  }

  values(services, name) {
    const one = services.services.find((service) => service.name === name);
    return one ? { busy: one.busy, call_rate: one.call_rate, lag_records: one.inputs.reduce((all, input) => all + input.lag_records, 0) } : {};
  }
}

// The parts by their key in a snapshot, and the kind of what can be chosen in them.
const PARTS = {
  queues: { kind: "queue", made: null, make: () => new QueuesPart() },
  journals: { kind: "journal", made: null, make: () => new JournalsPart() },
  services: { kind: "service", made: null, make: () => new ServicesPart() },
};

function chosenIs(kind, name) {
  const first = page.chosen?.things[0];
  return first?.kind === kind && first.name === name;
}

function partOf(kind) {
  const entry = Object.entries(PARTS).find(([, part]) => part.kind === kind);
  return entry ? { key: entry[0], part: entry[1].made } : null;
}

function sectionValues(snapshot, kind, name) {
  const found = partOf(kind);
  return found?.part && snapshot[found.key] ? found.part.values(snapshot[found.key], name) : {};
}

// Shows what the snapshot has besides a flow.
function showSections(snapshot) {
  page.hasSections = false;
  const facts = [];
  for (const [key, part] of Object.entries(PARTS)) {
    const figures = snapshot[key];
    if (!figures) continue;
    page.hasSections = true;
    part.made ??= part.make();
    part.made.show(figures);
    facts.push(...part.made.facts(figures));
  }
  const alone = page.hasSections && !snapshot.flow;
  document.body.classList.toggle("no-flow", alone);
  if (alone) {
    setFacts("facts", [["running for", duration(snapshot.seconds)], ...facts]);
    const titles = Object.entries(PARTS).filter(([key]) => snapshot[key]).map(([key]) => key);
    const title = `Millstream: ${titles.join(", ")}`;
    setText(element("flow"), title);
    if (document.title !== title) document.title = title;
    setText(element("detail-text"), "");
  }
  const first = page.chosen?.things[0];
  const found = first ? partOf(first.kind) : null;
  // The process has started again: the history of what was chosen has begun anew.
  if (found?.part && page.stale === page.chosen && Object.keys(sectionValues(snapshot, first.kind, first.name)).length > 0) {
    page.stale = null;
    choose(page.chosen.things, page.chosen.title);
    return;
  }
  const place = element("section-detail");
  if (!found?.part) {
    place.hidden = true;
    return;
  }
  place.hidden = false;
  const name = `${first.kind} ${first.name}`;
  if (place.dataset.of !== name) {
    place.dataset.of = name;
    place.replaceChildren();
  }
  if (place.dataset.busy) return;
  place.dataset.busy = "1";
  Promise.resolve(found.part.detail(place, first.name)).catch(() => {}).finally(() => delete place.dataset.busy);
}
