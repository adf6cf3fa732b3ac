// The cluster as a picture: requests go by way of the switch, along the top; responses go from the nodes
// straight to the clients, along the bottom. The wider a line, the more goes along it.

import { UNKNOWN, count, few, rate, set, standing, svg, say, traffic } from "./words.js";

const THICKEST = 9;
const THINNEST = 1.25;

let drawn = null;

/** Draws the view into `place`. What it is made of stays as long as the nodes and the width do. */
export function draw(place, view) {
  const width = Math.floor(place.clientWidth);
  if (width === 0) return;
  const shape = JSON.stringify([width, view.nodes.map((node) => node.name)]);
  if (drawn?.shape !== shape) {
    drawn = { shape, ...build(width, view.nodes) };
    place.replaceChildren(drawn.root);
  }
  update(drawn, view);
}

/** Where everything is. */
function measure(width, nodes) {
  const narrow = width < 600;
  const row = nodes.length <= 6 ? 54 : nodes.length <= 14 ? 40 : nodes.length <= 24 ? 26 : 18;
  const height = Math.max(narrow ? 290 : 300, nodes.length * row + 16);
  const [people, node] = narrow ? [62, nodes.length > 14 ? 96 : 112] : [112, 232];
  const [machine, machineHeight] = narrow ? [74, 74] : [148, 84];
  const middle = (people + width - node) / 2;
  return {
    width, height, row, narrow, people, node, middle, machine, machineHeight,
    top: Math.max(machineHeight / 2 + 26, height * 0.24),
    bottom: height - Math.max(56, height * 0.2),
    half: height / 2,
    right: width - node,
    y: (index) => height / 2 + (index - (nodes.length - 1) / 2) * row,
    apart: Math.min(6, row / 5),
    detailed: row >= 40,
  };
}

function curve(x1, y1, x2, y2) {
  const bend = (x1 + x2) / 2;
  return `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`;
}

/** A line, and what moves along it. */
function line(kind, path) {
  const [edge, pulse] = ["edge", "pulse"].map((name) => svg("path", { class: `${name} ${kind}`, d: path }));
  return { edge, pulse, kind };
}

function arrow(kind, x, y, direction) {
  const back = x - 9 * direction;
  return svg("path", { class: `head ${kind}`, d: `M${x} ${y}L${back} ${y - 5}L${back} ${y + 5}Z` });
}

function text(kind, x, y, anchor = "middle") {
  return svg("text", { class: kind, x, y, "text-anchor": anchor });
}

function build(width, nodes) {
  const at = measure(width, nodes);
  const [left, right] = [at.middle - at.machine / 2, at.middle + at.machine / 2];
  // In front of a node there is an arrow, if there is room for one.
  const given = (index) => curve(right, at.top, at.right - (at.detailed ? 9 : 0), at.y(index) - at.apart);
  const back = (index) => curve(at.right, at.y(index) + at.apart, at.middle, at.bottom);
  const lines = {
    asked: line("there", curve(at.people, at.half - 24, left - 9, at.top)),
    answered: line("back", curve(left, at.top - 20, at.people + 4, at.half - 36)),
    told: line("back", curve(at.middle, at.bottom, at.people + 9, at.half + 24)),
    given: nodes.map((_, index) => line("there", given(index))),
    back: nodes.map((_, index) => line("back", back(index))),
  };
  const words = {
    title: svg("title", { id: "picture-title" }),
    asked: text("rate there", at.people + 10, at.half - 6, "start"),
    told: text("rate back", at.middle, at.bottom + 22),
    size: text("rate back", at.middle, at.bottom + 39),
    own: text("rate back", at.middle, at.top - at.machineHeight / 2 - 8),
    flows: text("quiet", at.middle, at.top + 12),
    waiting: text("quiet", at.middle, at.top + 28),
  };
  const boxes = nodes.map((node, index) => box(at, node, at.y(index)));
  const all = [lines.asked, lines.answered, lines.told, ...lines.given, ...lines.back];
  const root = svg(
    "svg",
    { viewBox: `0 0 ${at.width} ${at.height}`, role: "img", "aria-labelledby": "picture-title" },
    words.title,
    ...all.map((each) => each.edge),
    ...all.map((each) => each.pulse),
    arrow("there", left, at.top, 1),
    arrow("back", at.people, at.half + 24, -1),
    ...(at.detailed ? nodes.map((_, index) => arrow("there", at.right, at.y(index) - at.apart, 1)) : []),
    svg("rect", { class: "people", x: 1, y: at.half - 44, width: at.people - 1, height: 88, rx: 10 }),
    svg("text", { class: "name", x: at.people / 2, y: at.half + 5, "text-anchor": "middle" }, "clients"),
    svg("rect", {
      class: "machine", x: left, y: at.top - at.machineHeight / 2, width: at.machine, height: at.machineHeight,
      rx: 10,
    }),
    svg("text", { class: "name", x: at.middle, y: at.top - 8, "text-anchor": "middle" }, "switch"),
    ...boxes.map((each) => each.root),
    words.asked, words.told, words.size, words.own, words.flows, words.waiting,
  );
  return { root, at, lines, words, boxes };
}

/** A node: as much about it as there is room for. */
function box(at, node, y) {
  const height = at.row - (at.detailed ? 8 : 2);
  const first = at.detailed ? y - 3 : y + 4;
  const inside = at.right + 10;
  const size = at.row < 20 ? 11 : 13;
  const letters = Math.floor((at.node - (at.detailed || at.narrow ? 34 : 128)) / (size * 0.6));
  const name = node.name.length > letters ? `${node.name.slice(0, letters - 1)}…` : node.name;
  const parts = {
    title: svg("title"),
    sign: svg("text", { x: inside, y: first }),
    name: svg("text", { class: "name", x: inside + 17, y: first }, name),
    rate: at.detailed ? text("quiet", inside, y + 14, "start") : text("quiet", at.width - 8, first, "end"),
    queue: svg("rect", { class: "fill", x: at.width - 62, y: first - 9, width: 0, height: 6, rx: 3 }),
  };
  const track = svg("rect", { class: "track", x: at.width - 62, y: first - 9, width: 52, height: 6, rx: 3 });
  const withQueue = at.detailed && !at.narrow;
  const root = svg(
    "g", {}, parts.title,
    svg("rect", {
      class: "box", x: at.right, y: y - height / 2, width: at.node - 1, height, rx: at.detailed ? 8 : 4,
    }),
    parts.sign, parts.name,
    ...(at.narrow && !at.detailed ? [] : [parts.rate]),
    ...(withQueue ? [track, parts.queue] : []),
  );
  set(root, { class: size < 13 ? "small" : "" });
  return { root, ...parts };
}

function update({ at, lines, words, boxes }, view) {
  const most = Math.max(view.requests_per_s ?? 0, view.responses?.per_s ?? 0, 1e-9);
  const show = ({ edge, pulse, kind }, perS, hidden = false) => {
    const moves = perS > 0;
    const thickness = moves ? THINNEST + ((THICKEST - THINNEST) * Math.min(perS, most)) / most : THINNEST;
    const look = perS === null ? " unknown" : moves ? "" : " idle";
    const visibility = (is) => (is ? "visible" : "hidden");
    set(edge, {
      class: `edge ${kind}${look}`, "stroke-width": thickness.toFixed(2), visibility: visibility(!hidden),
    });
    set(pulse, {
      "stroke-width": Math.max(2, thickness * 0.55).toFixed(2), visibility: visibility(moves && !hidden),
    });
  };
  const { responses } = view;
  show(lines.asked, view.requests_per_s);
  show(lines.told, responses && responses.per_s);
  show(lines.answered, view.answered_per_s, !(view.answered_per_s > 0));
  view.nodes.forEach((node, index) => {
    show(lines.given[index], node.requests_per_s);
    show(lines.back[index], node.responses && node.responses.per_s);
    tell(boxes[index], node, at);
  });
  const [asked, told] = at.narrow ? ["/s", "/s"] : [" requests/s", " responses/s"];
  const unknown = at.narrow ? UNKNOWN : `responses: ${UNKNOWN}`;
  say(words.asked, view.requests_per_s === null ? "" : `${rate(view.requests_per_s)}${asked}`);
  say(words.told, responses ? `${rate(responses.per_s)}${told}` : unknown);
  say(words.size, responses ? traffic(responses.bytes_per_s) : "");
  say(words.own, view.answered_per_s > 0 ? `answers ${rate(view.answered_per_s)}/s` : "");
  say(words.flows, at.narrow ? `${few.format(view.flows)} conn.` : `${count(view.flows)} connections`);
  say(words.waiting, view.waiting > 0 ? `${few.format(view.waiting)} waiting` : "");
  say(words.title, inWords(view));
}

function tell(parts, node, at) {
  const { kind, sign } = standing(node.state);
  set(parts.sign, { class: `state-${kind}` });
  say(parts.sign, sign);
  const there = node.requests_per_s === null ? "" : `${rate(node.requests_per_s)}/s`;
  const roomy = at.detailed && !at.narrow;
  const back = node.responses && roomy ? ` · ${traffic(node.responses.bytes_per_s)} back` : "";
  say(parts.rate, node.state === "up" ? there + back : node.state);
  const [length, limit] = node.queue ?? [0, 0];
  const share = limit ? Math.min(length / limit, 1) : 0;
  set(parts.queue, { width: (52 * share).toFixed(1), class: share > 0.9 ? "fill full" : "fill" });
  const queue = node.queue ? `, accept queue ${length} of ${limit}` : "";
  say(parts.title, `${node.name} (${node.address}): ${node.state}${there && `, ${there} requests`}${queue}`);
}

/** The picture for those who do not see it. */
function inWords(view) {
  const nodes = view.nodes.length === 1 ? "1 node" : `${view.nodes.length} nodes`;
  const there = view.requests_per_s === null ? "Requests" : `${rate(view.requests_per_s)} requests per second`;
  const size = view.responses && traffic(view.responses.bytes_per_s);
  const back = size ? `${rate(view.responses.per_s)} responses per second, ${size},` : "Responses";
  return `${there} go from the clients through the switch to ${nodes}. `
    + `${back} go from the nodes straight to the clients.`;
}
