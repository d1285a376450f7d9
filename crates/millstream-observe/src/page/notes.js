// What has happened to a flow: its last failures and restarts, and the actions that a reader with the token has.
"use strict";

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

function line(kind, text, name) {
  const element = document.createElement(kind);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

// Failures of one kind: those of a step whose errors differ only in numbers and in what they quote. The newest is first.
function kindsOf(failures) {
  const kinds = new Map();
  for (const one of failures) {
    const error = one.error.replace(/'[^']*'|"[^"]*"|[0-9]+/g, "#");
    const kind = JSON.stringify([one.process, one.outcome, one.step, error]);
    if (kinds.has(kind)) kinds.get(kind).push(one);
    else kinds.set(kind, [one]);
  }
  return [...kinds];
}

// The newest failure of a kind: a line, and on request its traceback. All texts come from users: they are set as text, never as markup.
function failure([one, ...before]) {
  const words = [MOMENT.format(one.time_ms), one.outcome];
  if (before.length > 0) words[0] += `, ${before.length + 1} times since ${MOMENT.format(before.at(-1).time_ms)}`;
  if (one.process !== undefined) words.push(`process ${one.process}`);
  if (one.step) words.push(one.step);
  if (one.key !== null) words.push(`key ${one.key}`);
  const head = line(one.traceback ? "summary" : "p", words.join(" · "), "quiet-line");
  head.append(line("strong", one.error, "error"));
  if (one.item !== null) head.append(line("code", one.item, "item"));
  if (!one.traceback) return [head];
  return [head, line("pre", one.traceback)];
}

function showFailures(snapshot) {
  element("failures-section").hidden = snapshot.failures.length === 0;
  const place = element("failures");
  const newest = `${snapshot.run} ${snapshot.failures.map((one) => `${one.process ?? ""} ${one.number}`).join()}`;
  // A list that has not changed stays as it is; in one that has, what the reader has opened stays open.
  if (place.dataset.newest === newest) return;
  place.dataset.newest = newest;
  const opened = new Set([...place.querySelectorAll("details[open]")].map((details) => details.parentElement.dataset.kind));
  place.replaceChildren(...kindsOf(snapshot.failures).map(([kind, failures]) => {
    const item = document.createElement("li");
    item.dataset.kind = kind;
    const parts = failure(failures);
    if (parts.length === 1) {
      item.append(...parts);
    } else {
      const details = document.createElement("details");
      details.open = opened.has(kind);
      details.append(...parts);
      item.append(details);
    }
    return item;
  }));
}

function showRestarts(snapshot) {
  element("restarts-section").hidden = snapshot.restart_count === 0;
  const place = element("restarts");
  const key = String(snapshot.restart_count);
  if (place.dataset.count === key) return;
  place.dataset.count = key;
  element("restarts-title").textContent = `Restarts: ${key}`;
  place.replaceChildren(...snapshot.restarts.map((one) => line("li", `${MOMENT.format(one.time_ms)} · ${one.cause}`)));
}

const ACTIONS = {
  commit: ["Commit now", null],
  stop: ["Stop the flow", "Stop the flow? Its sources read no more, and the items in its steps are processed."],
  reload: ["Reload the configuration", null],
};

// Does an action, and says the outcome: `said` makes a line of a good answer.
async function ask(path, outcome, said) {
  const headers = { Authorization: `Bearer ${token}` };
  try {
    const answer = await fetch(`api/actions/${path}`, { method: "POST", headers, cache: "no-store" });
    outcome.textContent = answer.ok ? said(await answer.json()) : (await answer.text()).trim();
  } catch {
    outcome.textContent = "The server does not answer.";
  }
}

function act(name, question) {
  // In the frame of a notebook a browser asks no question.
  if (question && top === self && !confirm(question)) return;
  ask(name, element("action-outcome"), (answer) => {
    if (!answer.at_next_start) return `${ACTIONS[name][0]}: asked for.`;
    return ["The configuration was read.", ...answer.at_next_start].join(" ");
  });
}

// The buttons are there only for a reader who has opened the page with the token.
function showActions(snapshot) {
  const names = token ? snapshot.actions.filter((name) => ACTIONS[name]) : [];
  element("actions").hidden = names.length === 0;
  const place = element("action-buttons");
  if (place.dataset.names === names.join()) return;
  place.dataset.names = names.join();
  place.replaceChildren(...names.map((name) => {
    const [title, question] = ACTIONS[name];
    const button = line("button", title);
    button.type = "button";
    button.addEventListener("click", () => act(name, question));
    return button;
  }));
}

function showNotes(snapshot) {
  showFailures(snapshot);
  showRestarts(snapshot);
}
