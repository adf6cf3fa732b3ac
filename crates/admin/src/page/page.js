// The page: listens to what the switch says once a second, and shows it.

import { draw } from "./picture.js";
import { UNKNOWN, count, html, lasted, percent, rate, say, set, standing, svg, time, traffic } from "./words.js";

/** After so long without a word the connection is taken for lost. */
const PATIENCE_MS = 5000;
const AGAIN_MS = 1000;
/** How many seconds the small curves go back. */
const REMEMBERED = 120;
/** The upper bounds of the histograms that are written below them: index and words. */
const BOUNDS = [[0, "0.1 ms"], [3, "1 ms"], [6, "10 ms"], [9, "0.1 s"], [11, "1 s"], [13, "30 s"]];

const $ = (selector) => document.querySelector(selector);
const table = (selector) => $(`${selector} tbody`);
let latest = null;
let heard = 0;

// The connection.

function connect() {
  const source = new EventSource("/events");
  heard = Date.now();
  const lost = () => {
    source.close();
    clearInterval(watch);
    connection("lost", "connection lost, trying again");
    setTimeout(connect, AGAIN_MS);
  };
  const watch = setInterval(() => Date.now() - heard > PATIENCE_MS && lost(), AGAIN_MS);
  source.onerror = lost;
  source.onmessage = (event) => {
    heard = Date.now();
    connection("live", "live");
    latest = JSON.parse(event.data);
    remember(latest);
    render(latest);
  };
  source.addEventListener("trouble", (event) => {
    heard = Date.now();
    connection("trouble", `the switch does not answer: ${event.data}`);
  });
}

function connection(state, words) {
  set($("#connection"), { "data-state": state });
  say($("#connection"), words);
  document.documentElement.classList.toggle("stale", state !== "live");
  if (state !== "live") document.title = "! Switchback";
}

// Everything at once.

function render(view) {
  document.title = view.requests_per_s === null ? "Switchback" : `${rate(view.requests_per_s)}/s · Switchback`;
  const interfaces = view.interfaces.map(({ name, mode }) => `${name} (${mode} XDP)`).join(", ");
  say($("#about"), `version ${view.version} · up ${lasted(view.uptime_s)} · ${interfaces}`);
  numbers(view);
  draw($("#picture"), view);
  drains(view.nodes);
  nodes(view.nodes);
  latencies(view.latencies);
  errors(view.errors);
  services(view.services);
}

// Numbers with a curve of the last two minutes.

const past = { requests: [], responses: [], traffic: [], flows: [], waiting: [], failures: [] };

function remember(view) {
  const now = {
    requests: view.requests_per_s,
    responses: view.responses && view.responses.per_s,
    traffic: view.responses && view.responses.bytes_per_s,
    flows: view.flows,
    waiting: view.waiting,
    failures: view.failures_per_s,
  };
  for (const [name, list] of Object.entries(past)) {
    list.push(now[name]);
    if (list.length > REMEMBERED) list.shift();
  }
}

function numbers(view) {
  const perS = (number) => (number === null ? [UNKNOWN, ""] : [rate(number), "/s"]);
  const split = (words) => words.split(" ");
  const rows = [
    ["requests", "there", "requests", ...perS(view.requests_per_s)],
    ["responses", "back", "responses", ...perS(view.responses && view.responses.per_s)],
    ["traffic", "back", "traffic of responses", ...(view.responses ? split(traffic(view.responses.bytes_per_s)) : [UNKNOWN, ""])],
    ["flows", "plain", "connections", count(view.flows), ""],
    ["waiting", "plain", "waiting for a node", count(view.waiting), ""],
    ["failures", "failures", "failed: 5xx, cut off", ...perS(view.failures_per_s)],
  ];
  const place = $("#numbers");
  rows.forEach(([name, kind, title, number, unit], index) => {
    let card = place.children[index];
    if (!card) {
      card = html("div", { class: kind }, html("dt", {}, title), html("dd", {}, html("span"), html("small")),
        svg("svg", { viewBox: `0 0 ${REMEMBERED - 1} 26`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { class: "spark" })));
      place.append(card);
    }
    const dd = card.querySelector("dd");
    const is = number === UNKNOWN ? "unknown" : name === "failures" && number !== "0" ? "wrong" : "";
    set(dd, { class: is });
    say(dd.firstChild, number);
    say(dd.lastChild, unit && ` ${unit}`);
    set(card.querySelector(".spark"), { d: curveOf(past[name]) });
  });
}

function curveOf(values) {
  const most = Math.max(1e-9, ...values);
  const first = REMEMBERED - values.length;
  let path = "";
  let pen = "M";
  values.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${first + index} ${(25 - (23 * value) / most).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

// Drains.

const atFirst = new Map();

function drains(all) {
  const draining = all.filter((node) => node.state === "draining");
  for (const name of atFirst.keys()) {
    if (!draining.some((node) => node.name === name)) atFirst.delete(name);
  }
  $("#drains").hidden = draining.length === 0;
  const rows = draining.map((node) => {
    const most = Math.max(atFirst.get(node.name) ?? 0, node.flows ?? 0);
    atFirst.set(node.name, most);
    const left = node.flows === null ? "waiting for its report"
      : node.flows === 0 ? "idle: it can be stopped"
      : `${count(node.flows)} connection${node.flows === 1 ? "" : "s"} left, ${count(node.in_flight)} in flight`;
    const done = most === 0 ? 1 : 1 - (node.flows ?? most) / most;
    return html("li", {}, html("strong", {}, node.name),
      html("progress", { max: 1, value: done, "aria-label": `${node.name}: share of its connections that have left` }), html("span", {}, left));
  });
  $("#drains ul").replaceChildren(...rows);
}

// The table of nodes, which can be sorted.

const COLUMNS = [
  { title: "node", key: (node) => node.name, show: nameOf, text: true },
  { title: "requests/s", key: (node) => node.requests_per_s, show: (node, most) => withBar(rate(node.requests_per_s), node.requests_per_s / most) },
  { title: "responses/s", key: (node) => node.responses && node.responses.per_s, show: (node) => [rate(node.responses && node.responses.per_s)] },
  { title: "traffic back", key: (node) => node.responses && node.responses.bytes_per_s, show: (node) => [node.responses ? traffic(node.responses.bytes_per_s) : UNKNOWN] },
  { title: "failed/s", key: (node) => node.failures_per_s, show: (node) => [rate(node.failures_per_s)], bad: (node) => node.failures_per_s > 0 },
  { title: "in flight", key: (node) => node.in_flight, show: (node) => [count(node.in_flight)] },
  { title: "connections", short: "open", key: (node) => node.flows, show: (node) => [count(node.flows)] },
  { title: "accept queue", short: "queue", key: (node) => node.queue && node.queue[0] / node.queue[1], show: queueOf },
  { title: "CPU", key: (node) => node.cpu, show: (node) => [percent(node.cpu)] },
  { title: "first byte", key: (node) => node.first_byte_us, show: (node) => [node.first_byte_us === null ? "none" : time(node.first_byte_us)] },
];
let sorted = null;
const states = new Map();

function nameOf(node) {
  const { kind, sign } = standing(node.state);
  const here = node.here ? ", this machine" : "";
  return [html("span", { class: `mark state-${kind}`, "aria-hidden": "true" }, sign), html("span", { class: "name" }, node.name), " ",
    html("span", { class: "quiet" }, `${node.state}${here} · ${node.address}`)];
}

function bar(share, full) {
  return svg("svg", { class: "bar", viewBox: "0 0 56 6", "aria-hidden": "true" }, svg("rect", { class: "track", width: 56, rx: 3 }),
    svg("rect", { class: full ? "fill full" : "fill", width: 56 * Math.min(share, 1), rx: 3 }));
}

function withBar(words, share) {
  return words === UNKNOWN ? [words] : [words, bar(share, false)];
}

function queueOf(node) {
  if (!node.queue) return [UNKNOWN];
  const [length, limit] = node.queue;
  return [`${count(length)} of ${count(limit)}`, bar(length / limit, length > limit * 0.9)];
}

function header() {
  const cells = COLUMNS.map((column, index) => {
    const button = html("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const first = column.text ? "ascending" : "descending";
      const other = column.text ? "descending" : "ascending";
      // A third time, and the nodes are in the order of the configuration again.
      const next = sorted?.index !== index ? first : sorted.order === first ? other : null;
      sorted = next && { index, order: next };
      cells.forEach((cell, at) => set(cell, { "aria-sort": at === index && next ? next : "none" }));
      if (latest) nodes(latest.nodes);
    });
    return html("th", { scope: "col", role: "columnheader", "aria-sort": "none", ...(column.text ? {} : { class: "number" }) }, button);
  });
  $("#nodes thead").replaceChildren(html("tr", { role: "row" }, ...cells));
}

function inOrder(all) {
  if (!sorted) return all;
  const { key } = COLUMNS[sorted.index];
  const sign = sorted.order === "ascending" ? 1 : -1;
  const compare = (a, b) => {
    const [one, other] = [key(a), key(b)];
    // What is not known comes last either way.
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);
  };
  return [...all].sort(compare);
}

function nodes(all) {
  const most = Math.max(1e-9, ...all.map((node) => node.requests_per_s ?? 0));
  rows(table("#nodes"), inOrder(all).map((node) => COLUMNS.map((column) => {
    const parts = column.show(node, most);
    const unknown = parts[0] === UNKNOWN;
    const kind = column.text ? "wide" : `number${column.bad?.(node) ? " wrong" : ""}${unknown ? " unknown" : ""}`;
    return html("td", { role: "cell", class: kind, "data-label": column.short ?? column.title }, ...parts);
  })));
  for (const { name, state } of all) {
    const before = states.get(name);
    if (before !== undefined && before !== state) say($("#news"), `${name} is ${state}`);
    states.set(name, state);
  }
}

/** Rows of a table: cells that stay the same are left alone. */
function rows(body, wanted) {
  wanted.forEach((cells, index) => {
    const row = body.children[index] ?? body.appendChild(html("tr", { role: "row" }));
    cells.forEach((cell, at) => {
      const there = row.children[at];
      if (!there) row.append(cell);
      else if (!there.isEqualNode(cell)) there.replaceWith(cell);
    });
  });
  while (body.children.length > wanted.length) body.lastChild.remove();
}

// Latencies.

const PARTS = [
  ["queued", "in the switch, up to the handoff", ""],
  ["first_byte", "in the node, up to the first byte", "response"],
  ["duration", "in the node, up to the last byte", "response"],
];

function latencies(all) {
  const place = $("#latency > div");
  if (all === null || all.length === 0) {
    place.replaceChildren(html("p", { class: "none" }, all === null ? "Not known: nothing is told of responses." : "No request yet."));
    return;
  }
  const width = Math.max(200, place.querySelector("figure")?.clientWidth ?? 340);
  const pools = all.map((latency) => html("div", { class: "pool" }, html("h3", {}, latency.service, html("small", {}, ` to ${latency.pool}`)),
    html("div", { class: "histograms" }, ...PARTS.map(([key, title, kind]) => histogram(latency[key], title, kind, width)))));
  place.replaceChildren(...pools);
}

function histogram(quantiles, title, kind, width) {
  const { counts } = quantiles;
  const [most, step] = [Math.max(1, ...counts), width / Math.max(counts.length, 1)];
  const columns = counts.map((number, index) => {
    const height = number === 0 ? 0 : Math.max(2, (66 * number) / most);
    return svg("rect", { class: "column", x: (index * step + 1).toFixed(1), y: 70 - height, width: Math.max(1, step - 2).toFixed(1), height, rx: 2 });
  });
  const bounds = BOUNDS.filter(([index], at) => index < counts.length && (width > 300 || at % 2 === 0));
  const labels = bounds.map(([index, words]) => svg("text", { x: ((index + 1) * step).toFixed(1), y: 86, "text-anchor": "middle" }, words));
  const shown = [["p50", quantiles.p50_us], ["p90", quantiles.p90_us], ["p99", quantiles.p99_us]];
  const words = quantiles.count === 0 ? "no request" : shown.map(([name, us]) => `${name} ${time(us)}`).join(", ");
  return html("figure", { class: kind }, html("figcaption", {}, title),
    quantiles.count === 0 ? html("p", { class: "none" }, "no request")
      : html("p", { class: "quantiles" }, ...shown.map(([name, us]) => html("span", {}, html("small", {}, `${name} `), time(us)))),
    svg("svg", { viewBox: `0 0 ${width} 92`, role: "img", "aria-label": `${title}: ${words}` }, ...columns,
      svg("path", { class: "base", d: `M0 70.5H${width}` }), ...labels));
}

// Errors and services.

function errors(all) {
  $("#errors .none").hidden = all.length > 0;
  $("#errors table").hidden = all.length === 0;
  rows(table("#errors"), all.map(({ what, per_s, total }) => [
    html("td", { class: "what" }, what),
    html("td", { class: per_s > 0 ? "number wrong" : "number zero" }, per_s === null ? UNKNOWN : `${rate(per_s)}/s`),
    html("td", { class: "number" }, count(total)),
  ]));
}

function services(all) {
  rows(table("#services"), all.map(({ name, listen, requests, requests_per_s }) => [
    html("td", { class: "what" }, html("span", { class: "name" }, name)),
    html("td", { class: "what" }, listen.join(", ")),
    html("td", { class: "number" }, rate(requests_per_s)),
    html("td", { class: "number" }, count(requests)),
  ]));
}

header();
new ResizeObserver(() => latest && render(latest)).observe($("#picture"));
connect();
