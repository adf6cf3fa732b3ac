// The page: listens to what the switch says once a second, and shows it.

import { latencies } from "./latency.js";
import { header, nodes } from "./nodes.js";
import { draw } from "./picture.js";
import { UNKNOWN, count, html, lasted, marked, rate, rows, say, set, svg, things, traffic } from "./words.js";

/** After so long without a word the connection is taken for lost. */
const PATIENCE_MS = 5000;
const AGAIN_MS = 1000;
/** How many seconds the small curves go back. */
const REMEMBERED = 120;

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
  nodes(table("#nodes"), view.nodes);
  warnings(view.warnings);
  switches(view);
  news("", view.nodes);
  news("switch ", view.switches);
  latencies($("#latency > div"), view.latencies);
  errors(view.errors);
  services(view.services);
  pools(view.pools);
  events(view.events);
}

// Numbers with a curve of the last two minutes.

const remembered = { requests: [], responses: [], traffic: [], flows: [], waiting: [], failures: [] };

function remember(view) {
  const now = {
    requests: view.requests_per_s,
    responses: view.responses && view.responses.per_s,
    traffic: view.responses && view.responses.bytes_per_s,
    flows: view.flows,
    waiting: view.waiting,
    failures: view.failures_per_s,
  };
  for (const [name, list] of Object.entries(remembered)) {
    list.push(now[name]);
    if (list.length > REMEMBERED) list.shift();
  }
}

function numbers(view) {
  const perS = (number) => (number === null ? [UNKNOWN, ""] : [rate(number), "/s"]);
  const { responses } = view;
  const past = responses ? traffic(responses.bytes_per_s).split(" ") : [UNKNOWN, ""];
  const cards = [
    ["requests", "there", "requests", ...perS(view.requests_per_s)],
    ["responses", "back", "responses", ...perS(responses && responses.per_s)],
    ["traffic", "back", "traffic of responses", ...past],
    ["flows", "plain", "connections", count(view.flows), ""],
    ["waiting", "plain", "waiting for a node", count(view.waiting), ""],
    ["failures", "failures", "failed: 5xx, cut off", ...perS(view.failures_per_s)],
  ];
  const place = $("#numbers");
  cards.forEach(([name, kind, title, number, unit], index) => {
    const card = place.children[index] ?? place.appendChild(cardOf(kind, title));
    const dd = card.querySelector("dd");
    const is = number === UNKNOWN ? "unknown" : name === "failures" && number !== "0" ? "wrong" : "";
    set(dd, { class: is });
    say(dd.firstChild, number);
    say(dd.lastChild, unit && ` ${unit}`);
    set(card.querySelector(".spark"), { d: curveOf(remembered[name]) });
  });
}

function cardOf(kind, title) {
  const box = { viewBox: `0 0 ${REMEMBERED - 1} 26`, preserveAspectRatio: "none", "aria-hidden": "true" };
  const curve = svg("svg", box, svg("path", { class: "spark" }));
  return html("div", { class: kind }, html("dt", {}, title), html("dd", {}, html("span"), html("small")), curve);
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
  const lines = draining.map((node) => {
    const most = Math.max(atFirst.get(node.name) ?? 0, node.flows ?? 0);
    atFirst.set(node.name, most);
    const left = node.flows === null ? "waiting for its report"
      : node.flows === 0 ? "idle: it can be stopped"
      : `${things(node.flows, "connection")} left, ${count(node.in_flight)} in flight`;
    const done = most === 0 ? 1 : 1 - (node.flows ?? most) / most;
    const label = `${node.name}: share of its connections that have left`;
    const progress = html("progress", { max: 1, value: done, "aria-label": label });
    return html("li", {}, html("strong", {}, node.name), progress, html("span", {}, left));
  });
  $("#drains ul").replaceChildren(...lines);
}

// What is read out to those who do not see it.

const states = new Map();

function news(kind, all) {
  for (const { name: own, state } of all) {
    const name = `${kind}${own}`;
    const before = states.get(name);
    if (before !== undefined && before !== state) say($("#news"), `${name} is ${state}`);
    states.set(name, state);
  }
}

// What machines do not agree on, and the switches of the cluster.

function warnings(all) {
  $("#warnings").hidden = all.length === 0;
  $("#warnings ul").replaceChildren(...all.map((warning) => html("li", {}, warning)));
}

function switches({ switches: all, nodes: { length }, config, version: own }) {
  $("#switches").hidden = all.length === 0;
  const cell = (label, kind, words) => {
    const known = words === UNKNOWN ? "unknown" : "";
    return html("td", { role: "cell", class: `${kind} ${known}`.trim(), "data-label": label }, words);
  };
  const differs = (own, other) => (own !== null && own !== other ? "wrong" : "");
  rows(table("#switches"), all.map((one) => [
    html("td", { role: "cell", class: "wide" }, ...marked(one, describe(one))),
    cell("version", differs(one.version, own), one.version ?? UNKNOWN),
    cell("configuration", differs(one.config, config), one.config ?? UNKNOWN),
    cell("heard by", "number", `${one.heard_by} of ${things(length, "node")}`),
    cell("taken over", "number", count(one.taken_over)),
  ]));
}

function describe({ state, here, silent_s: silent }) {
  if (here) return `${state}, this machine`;
  return silent === null ? state : `${state} for ${lasted(silent)}`;
}

// Errors, services, pools and events.

function errors(all) {
  $("#errors .none").hidden = all.length > 0;
  $("#errors table").hidden = all.length === 0;
  rows(table("#errors"), all.map(({ what, per_s, total }) => [
    html("td", { class: "what" }, what),
    html("td", { class: per_s > 0 ? "number wrong" : "number zero" }, per_s === null ? UNKNOWN : `${rate(per_s)}/s`),
    html("td", { class: "number" }, count(total)),
  ]));
}

/** Words that are broken between, and not within. */
function listed(all) {
  return all.flatMap((words, index) => [...(index > 0 ? [" "] : []), html("span", { class: "whole" }, words)]);
}

function services(all) {
  rows(table("#services"), all.map(({ name, listen, routes, limits, requests, requests_per_s }) => [
    html("td", { class: "what" }, html("span", { class: "name" }, name)),
    html("td", {}, ...listed(listen)),
    html("td", { class: "what" }, ...routes.map((route) => html("div", {}, route))),
    html("td", { class: "what" }, ...limits.map((limit) => html("div", {}, limit))),
    html("td", { class: "number", "data-label": "requests/s" }, rate(requests_per_s)),
    html("td", { class: "number", "data-label": "since the start" }, count(requests)),
  ]));
}

function pools(all) {
  rows(table("#pools"), all.map(({ name, serving, nodes: of, others }) => [
    html("td", { class: "what" }, html("span", { class: "name" }, name)),
    html("td", { class: serving === 0 ? "wrong" : "" }, `${count(serving)} of ${things(of, "node")}`),
    html("td", { class: "what" }, others.join(", ")),
  ]));
}

function events(all) {
  $("#events .none").hidden = all.length > 0;
  $("#events table").hidden = all.length === 0;
  rows(table("#events"), all.map(({ time: at, level, message }) => [
    html("td", { class: "whole" }, at.slice(0, 19).replace("T", " ")),
    html("td", { class: level === "error" || level === "warn" ? "wrong" : "" }, level),
    html("td", { class: "what" }, message),
  ]));
}

$("#nodes thead").replaceChildren(header(() => latest && nodes(table("#nodes"), latest.nodes)));
new ResizeObserver(() => latest && render(latest)).observe($("#picture"));
connect();
