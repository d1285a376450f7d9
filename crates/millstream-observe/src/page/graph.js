// The graph of the flow: nodes and edges where the server has placed them.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const TEXT_MAX = 25;
const NAME_MAX = 22;

// An element of SVG. Text and names come from users: they are set as text and attributes, never as markup.
function svg(kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function shortened(text, limit = TEXT_MAX) {
  const characters = Array.from(text);
  return characters.length > limit ? characters.slice(0, limit - 1).join("") + "…" : text;
}

function stripes() {
  const definitions = svg("defs", {});
  const pattern = svg("pattern", { id: "stripes", width: 10, height: 10, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(svg("rect", { class: "stripe-back", width: 10, height: 10 }));
  pattern.append(svg("line", { class: "stripe-line", x1: 2, y1: 0, x2: 2, y2: 10, "stroke-width": 4 }));
  definitions.append(pattern);
  return definitions;
}

// Only what has changed is written: a graph of 200 steps is drawn once.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Which of many elements are in view: the others are written when they come into view, so that hundreds cost no more than a screenful.
const MANY = 60;

class InView {
  // `entered` is called with an element that has come into view.
  constructor(entered) {
    this.all = true;
    this.seen = new Set();
    this.observer = new IntersectionObserver((changes) => {
      for (const { target, isIntersecting } of changes) {
        if (isIntersecting && !this.seen.has(target)) {
          this.seen.add(target);
          entered(target);
        } else if (!isIntersecting) this.seen.delete(target);
      }
    }, { rootMargin: "100px" });
  }

  // Watches these elements, and no longer those of before.
  watch(elements) {
    this.observer.disconnect();
    this.seen.clear();
    this.all = elements.length < MANY;
    if (!this.all) for (const element of elements) this.observer.observe(element);
  }

  has(element) {
    return this.all || this.seen.has(element);
  }
}

const MARKS = { none: "", cause: "limits the flow", waiting: "waits" };

// The scale from which on the text of a node can be read, and the size of the map of a larger graph: in pixels, and as a share of that.
const SCALE_MIN = 0.77;
const MAP_HEIGHT = 120;
const MAP_SHARE = 0.25;
const MAP_HEIGHT_MIN = 18;

// A small picture of a graph that is larger than its place: the part in view is framed, and a click moves there.
class GraphMap {
  constructor(place, graph, scale) {
    this.place = place;
    const ratio = Math.min(place.clientWidth / graph.width, MAP_HEIGHT / graph.height, scale * MAP_SHARE);
    const [width, height] = [graph.width * ratio, Math.max(graph.height * ratio, MAP_HEIGHT_MIN)];
    this.picture = svg("svg", { class: "map", width, height, viewBox: `0 0 ${graph.width} ${graph.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.boxes = graph.nodes.map((node) => svg("rect", { class: "map-node", x: node.x, y: node.y, ...graph.node }));
    this.frame = svg("rect", { class: "map-frame" });
    // A click between the boxes counts too.
    this.picture.append(svg("rect", { class: "map-back", width: graph.width, height: graph.height }), ...this.boxes, this.frame);
    this.scale = scale;
    const move = (event) => {
      const { left, top } = this.picture.getBoundingClientRect();
      const [x, y] = [(event.clientX - left) / width, (event.clientY - top) / height];
      place.scrollTo({ left: x * place.scrollWidth - place.clientWidth / 2, top: y * place.scrollHeight - place.clientHeight / 2 });
    };
    this.picture.addEventListener("pointerdown", (event) => { this.picture.setPointerCapture(event.pointerId); move(event); });
    this.picture.addEventListener("pointermove", (event) => { if (event.buttons) move(event); });
    place.addEventListener("scroll", () => this.follow());
    this.follow();
  }

  follow() {
    const { scrollLeft: left, scrollTop: top, clientWidth: width, clientHeight: height } = this.place;
    for (const [name, value] of Object.entries({ x: left, y: top, width, height })) setAttribute(this.frame, name, String(value / this.scale));
  }

  show(marks) {
    this.boxes.forEach((box, index) => setAttribute(box, "class", `map-node${marks[index] ?? ""}`));
  }
}

class Graph {
  // `choose` is called with the index of a node that was chosen.
  constructor(place, graph, choose) {
    this.nodes = [];
    this.place = place;
    this.cause = -1;
    this.newest = { steps: [], chosen: -1, faultOf: () => undefined };
    this.inView = new InView((group) => this.showNode(this.nodes.findIndex((node) => node.group === group)));
    this.graph = graph;
    const picture = svg("svg", { viewBox: `0 0 ${graph.width} ${graph.height}`, role: "group", "aria-label": `Steps of flow ${graph.flow}` });
    picture.append(stripes());
    for (const edge of graph.edges) picture.append(svg("path", { class: edge.exchanged ? "edge exchanged" : "edge", d: edge.path }));
    this.edges = new Map();
    for (const edge of graph.edges) {
      const [from, to] = [graph.nodes[edge.from], graph.nodes[edge.to]];
      const label = svg("text", { class: "quiet flight", x: (from.x + graph.node.width + to.x) / 2, y: (from.y + to.y + graph.node.height) / 2 - 6, "text-anchor": "middle" }, "");
      this.edges.set(`${edge.from} ${edge.to}`, label);
      picture.append(label);
    }
    graph.nodes.forEach((node, index) => picture.append(this.node(graph, node, () => choose(index))));
    this.picture = picture;
    place.replaceChildren(picture);
    this.fit();
    this.begin();
    this.inView.watch(this.nodes.map(({ group }) => group));
  }

  // Makes the graph as small as its place, as far as its text can be read; a larger one has a map.
  fit() {
    const { width, height } = this.graph;
    const room = Math.min(this.place.clientWidth / width, (innerHeight * 0.7) / height);
    const scale = Math.max(Math.min(room, 1), SCALE_MIN);
    this.scale = scale;
    for (const [name, size] of [["width", width], ["height", height]]) setAttribute(this.picture, name, (size * scale).toFixed(0));
    this.map?.picture.remove();
    this.map = room < scale ? new GraphMap(this.place, this.graph, scale) : null;
    if (this.map) this.place.before(this.map.picture);
    this.showMap();
  }

  // Brings the sources into view: those of a wide fan-out are in the middle of its height.
  begin() {
    const sources = this.graph.nodes.filter((node) => node.kind === "source");
    if (sources.length === 0) return;
    const middle = sources.reduce((sum, node) => sum + node.y, 0) / sources.length + this.graph.node.height / 2;
    this.place.scrollTo({ left: 0, top: middle * this.scale - this.place.clientHeight / 2 });
  }

  node(graph, node, choose) {
    const { width, height } = graph.node;
    const group = svg("g", { class: "node", transform: `translate(${node.x},${node.y})`, tabindex: 0, role: "button" });
    const title = svg("title", {}, node.detail ? `${node.name}: ${node.kind}, ${node.detail}` : `${node.name}: ${node.kind}`);
    group.append(title);
    group.append(svg("rect", { class: "box", width, height, rx: 6 }));
    group.append(svg("rect", { class: "stripes", width, height, rx: 6, fill: "url(#stripes)" }));
    const parts = {
      kind: svg("text", { class: "quiet", x: 10, y: 38 }, node.kind),
      rates: svg("text", { x: 10, y: 56 }, ""),
      load: svg("text", { x: 10, y: 73 }, ""),
      bar: svg("rect", { class: "bar", x: 0, y: height - 4, width: 0, height: 4 }),
    };
    group.append(svg("text", { class: "name", x: 10, y: 20 }, shortened(node.name, NAME_MAX)));
    for (const part of Object.values(parts)) group.append(part);
    group.addEventListener("click", choose);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose();
      }
    });
    this.nodes.push({ group, parts, node, width });
    return group;
  }

  // Brings the step that limits the flow into view, once for each such step.
  follow(cause) {
    if (cause === this.cause) return;
    this.cause = cause;
    if (cause < 0) return;
    const { node, width } = this.nodes[cause];
    this.place.scrollTo({ left: (node.x + width / 2) * this.scale - this.place.clientWidth / 2, top: node.y * this.scale - this.place.clientHeight / 2 });
  }

  // Shows how many items are on their way between operators. Steps of one operator call each other: nothing is between them.
  showEdges(edges) {
    for (const { from, to, in_flight_items: items } of edges) {
      const label = this.edges.get(`${from} ${to}`);
      if (label) setText(label, items > 0 ? human(items) : "");
    }
  }

  // Shows the figures of the steps, and which one was chosen; `faultOf` returns the condition of a step.
  show(steps, chosen, faultOf) {
    this.newest = { steps, chosen, faultOf };
    this.follow(steps.findIndex((step) => step.mark === "cause"));
    this.nodes.forEach(({ group }, index) => { if (this.inView.has(group)) this.showNode(index); });
    this.showMap();
  }

  showMap() {
    this.map?.show(this.newest.steps.map((step) => this.marksOf(step)));
  }

  marksOf(step) {
    const fault = this.newest.faultOf(step.name);
    return (step.mark === "none" ? "" : ` ${step.mark}`) + (fault ? ` ${fault.severity}` : "");
  }

  showNode(index) {
    const { group, parts, node, width } = this.nodes[index];
    const step = this.newest.steps[index];
    if (!step) return;
    const fault = this.newest.faultOf(step.name);
    setAttribute(group, "class", `node${this.marksOf(step)}${index === this.newest.chosen ? " chosen" : ""}`);
    const words = MARKS[step.mark];
    setText(parts.kind, shortened(words ? `${node.kind} · ${words}` : node.kind));
    const rates = node.kind === "source" ? `${shown("rate", step.out_rate)} out`
      : node.kind === "sink" ? `${shown("rate", step.in_rate)} in`
      : `${shown("rate", step.in_rate)} → ${shown("rate", step.out_rate)}`;
    const age = step.ages ? ` · p99 ${duration(step.ages.p99)}` : "";
    setText(parts.rates, rates);
    setText(parts.load, `busy ${shown("share", step.busy)}${age}`);
    setAttribute(parts.bar, "width", (width * Math.min(step.busy, 1)).toFixed(1));
    setAttribute(group, "aria-label", `${node.name}, ${node.kind}, ${fault?.words || words || "no bottleneck"}, busy ${shown("share", step.busy)}, ${shown("rate", step.in_rate)} in`);
  }
}
