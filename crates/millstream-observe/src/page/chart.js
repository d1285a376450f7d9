// Time series of the last 15 minutes of what was chosen, drawn by uPlot.
"use strict";

const MOMENTS_MAX = 900;

// Which series are drawn together, by what was chosen: title, unit, and the name and the label of each series.
const CHARTS = {
  step: [
    ["Items per second", "rate", [["in_rate", "in"], ["out_rate", "out"]]],
    ["Busy share of the busiest worker", "share", [["busy", "busy"]]],
    ["Age at the end of the step", "seconds", [["p50", "p50"], ["p99", "p99"], ["p999", "p99.9"]]],
  ],
  source: [
    ["Lag in records", "count", [["lag_records", "records"]]],
    ["Lag in bytes", "bytes", [["lag_bytes", "bytes"]]],
    ["Lag in time", "seconds", [["lag_seconds", "lag"], ["watermark_lag_seconds", "watermark"]]],
  ],
  sink: [
    ["Records not delivered", "count", [["waiting_records", "records"]]],
    ["Bytes not delivered", "bytes", [["waiting_bytes", "bytes"]]],
    ["Age of the oldest", "seconds", [["waiting_seconds", "age"]]],
  ],
  worker: [
    ["Busy share", "share", [["busy", "busy"]]],
    ["Items in flight", "count", [["in_flight_items", "items"]]],
  ],
  queue: [
    ["Items", "count", [["items", "waiting"]]],
    ["Age", "seconds", [["oldest_seconds", "oldest item that waits"], ["held_seconds", "held by a client"]]],
    ["Items per second", "rate", [["in_rate", "in"], ["out_rate", "out"], ["expired_rate", "expired"]]],
  ],
  journal: [
    ["Records per second", "rate", [["record_rate", "appended"]]],
    ["Bytes per second", "bytes", [["byte_rate", "appended"]]],
    ["Records not read", "count", [["cursor_lag", "slowest cursor"], ["follower_lag", "slowest follower"], ["not_durable", "not durable"]]],
  ],
  service: [
    ["Busy share", "share", [["busy", "busy"]]],
    ["Calls per second", "rate", [["call_rate", "calls"]]],
    ["Lag of the inputs in records", "count", [["lag_records", "records"]]],
  ],
  epochs: [
    ["Time of a commit", "seconds", [["waiting", "waiting"], ["saving", "saving"], ["syncing", "syncing"]]],
    ["Bytes of a commit", "bytes", [["bytes", "bytes"]]],
    ["Time since the last epoch ended", "seconds", [["age", "age"]]],
  ],
};

// A number as a person reads it.
function human(number) {
  const size = Math.abs(number);
  if (size >= 1e9) return (number / 1e9).toFixed(2) + " G";
  if (size >= 1e6) return (number / 1e6).toFixed(2) + " M";
  if (size >= 1e4) return (number / 1e3).toFixed(1) + " k";
  if (size >= 100 || Number.isInteger(number)) return number.toFixed(0);
  return number.toFixed(1);
}

function duration(seconds) {
  if (seconds >= 86400) return (seconds / 86400).toFixed(1) + " d";
  if (seconds >= 3600) return (seconds / 3600).toFixed(1) + " h";
  if (seconds >= 60) return (seconds / 60).toFixed(1) + " min";
  if (seconds >= 1) return seconds.toFixed(1) + " s";
  if (seconds >= 1e-3) return (seconds * 1e3).toFixed(1) + " ms";
  return (seconds * 1e6).toFixed(0) + " µs";
}

const UNITS = {
  rate: (value) => human(value) + "/s",
  share: (value) => (value * 100).toFixed(0) + "%",
  seconds: duration,
  count: human,
  bytes: (value) => human(value).replace(/( [kMG])?$/, (prefix) => (prefix || " ") + "B"),
};

function shown(unit, value) {
  return value === null || value === undefined ? "–" : UNITS[unit](value);
}

// The charts of one thing: `kind` is a key of CHARTS, `name` the name of the thing.
class Charts {
  constructor(place, kind, name) {
    this.place = place;
    this.kind = kind;
    this.name = name;
    this.times = [];
    this.series = {};
    this.plots = [];
  }

  // Takes the answer of /api/history.json.
  begin(history) {
    this.times = history.times_ms.map((time) => time / 1000);
    this.series = history.series;
    this.draw();
  }

  // Draws each chart as soon as a value of it is known.
  draw() {
    for (const [title, unit, lines] of CHARTS[this.kind]) {
      if (this.plots.some((plot) => plot.title === title)) continue;
      const known = lines.filter(([key]) => this.series[key]?.some((value) => value !== null));
      if (known.length > 0) this.plots.push({ title, ...this.plot(title, unit, known) });
    }
  }

  // Adds a moment; `values` has the value of each series.
  add(timeMs, values) {
    const time = timeMs / 1000;
    if (this.times.length > 0 && time <= this.times[this.times.length - 1]) return;
    this.times.push(time);
    for (const key of Object.keys(this.series)) this.series[key].push(values[key] ?? null);
    if (this.times.length > MOMENTS_MAX) {
      this.times.shift();
      for (const key of Object.keys(this.series)) this.series[key].shift();
    }
    for (const { chart, lines } of this.plots) chart.setData(this.data(lines));
    this.draw();
  }

  data(lines) {
    return [this.times, ...lines.map(([key]) => this.series[key])];
  }

  plot(title, unit, lines) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = `${title}: ${this.name}`;
    figure.append(caption);
    this.place.append(figure);
    const style = getComputedStyle(document.documentElement);
    // They are read at each drawing: the reader may change between light and dark.
    const colour = (name) => () => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line") } };
    const options = {
      width: Math.max(figure.clientWidth, 260),
      height: 190,
      series: [{}, ...lines.map(([, label], index) => ({
        label, stroke: colour(`--series-${index + 1}`), width: 2, dash: [[], [6, 4], [2, 3]][index],
        value: (chart, value) => shown(unit, value),
      }))],
      scales: { y: { range: (chart, low, high) => [0, unit === "share" ? 1 : Math.max(high ?? 0, 1e-9) * 1.1] } },
      axes: [axis, { ...axis, size: 74, values: (chart, values) => values.map((value) => shown(unit, value)) }],
    };
    return { chart: new uPlot(options, this.data(lines), figure), lines, figure };
  }

  redraw() {
    for (const { chart } of this.plots) chart.redraw();
  }

  resize() {
    for (const { chart, figure } of this.plots) chart.setSize({ width: Math.max(figure.clientWidth, 260), height: 190 });
  }

  end() {
    for (const { chart, figure } of this.plots) {
      chart.destroy();
      figure.remove();
    }
    this.plots = [];
  }
}
