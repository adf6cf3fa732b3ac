// The table of nodes, which can be sorted by each of its columns.

import { UNKNOWN, count, html, marked, percent, rate, rows, set, svg, time, traffic } from "./words.js";

/** An accept queue that is fuller than this is shown to be full. */
const FULL = 0.9;

const back = (node) => node.responses && node.responses.per_s;
const bytes = (node) => node.responses && node.responses.bytes_per_s;
const fullness = (node) => node.queue && node.queue[0] / node.queue[1];

/** What is compared, and what is shown: texts and elements. `short` is for a phone. */
const COLUMNS = [
  { title: "node", key: (node) => node.name, show: nameOf, text: true },
  { title: "requests/s", key: (node) => node.requests_per_s, show: requestsOf },
  { title: "responses/s", key: back, show: (node) => [rate(back(node))] },
  { title: "traffic back", key: bytes, show: (node) => [node.responses ? traffic(bytes(node)) : UNKNOWN] },
  { title: "failed/s", key: (node) => node.failures_per_s, show: (node) => [rate(node.failures_per_s)], bad: true },
  { title: "in flight", key: (node) => node.in_flight, show: (node) => [count(node.in_flight)] },
  { title: "connections", short: "open", key: (node) => node.flows, show: (node) => [count(node.flows)] },
  { title: "accept queue", short: "queue", key: fullness, show: queueOf },
  { title: "CPU", key: (node) => node.cpu, show: (node) => [percent(node.cpu)] },
  { title: "first byte", key: (node) => node.first_byte_us, show: firstByteOf },
];

let sorted = null;

/** The row of titles; `changed` is called when another order is wanted. */
export function header(changed) {
  const cells = COLUMNS.map((column, index) => {
    const button = html("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const [first, second] = column.text ? ["ascending", "descending"] : ["descending", "ascending"];
      // A third time, and the nodes are in the order of the configuration again.
      const next = sorted?.index !== index ? first : sorted.order === first ? second : null;
      sorted = next && { index, order: next };
      cells.forEach((cell, at) => set(cell, { "aria-sort": at === index && next ? next : "none" }));
      changed();
    });
    const kind = column.text ? {} : { class: "number" };
    return html("th", { scope: "col", role: "columnheader", "aria-sort": "none", ...kind }, button);
  });
  return html("tr", { role: "row" }, ...cells);
}

/** Shows the nodes in the rows of `body`. */
export function nodes(body, all) {
  const most = Math.max(1e-9, ...all.map((node) => node.requests_per_s ?? 0));
  rows(body, inOrder(all).map((node) => COLUMNS.map((column) => {
    const parts = column.show(node, most);
    const kind = ["number"];
    if (column.bad && column.key(node) > 0) kind.push("wrong");
    if (parts[0] === UNKNOWN) kind.push("unknown");
    const label = column.short ?? column.title;
    return html("td", { role: "cell", class: column.text ? "wide" : kind.join(" "), "data-label": label }, ...parts);
  })));
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

function nameOf(node) {
  const here = node.here ? ", this machine" : "";
  return marked(node, `${node.state}${here} · ${node.address}`);
}

/** Beside the rate, how it is compared with that of the busiest node. */
function requestsOf(node, most) {
  const words = rate(node.requests_per_s);
  return words === UNKNOWN ? [words] : [words, bar(node.requests_per_s / most, false)];
}

function queueOf(node) {
  if (!node.queue) return [UNKNOWN];
  const [length, limit] = node.queue;
  return [`${count(length)} of ${count(limit)}`, bar(length / limit, length > limit * FULL)];
}

function firstByteOf(node) {
  return [node.first_byte_us === null ? "none" : time(node.first_byte_us)];
}

function bar(share, full) {
  const track = svg("rect", { class: "track", width: 56, rx: 3 });
  const fill = svg("rect", { class: full ? "fill full" : "fill", width: 56 * Math.min(share, 1), rx: 3 });
  return svg("svg", { class: "bar", viewBox: "0 0 56 6", "aria-hidden": "true" }, track, fill);
}
