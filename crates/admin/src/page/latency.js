// Histograms of latencies, three for each service and pool.

import { html, svg, time } from "./words.js";

/** The upper bounds that are written below the columns: index and words. */
const BOUNDS = [[0, "0.1 ms"], [3, "1 ms"], [6, "10 ms"], [9, "0.1 s"], [11, "1 s"], [13, "30 s"]];
/** A histogram that is narrower has every other one of them. */
const WIDE = 300;

const PARTS = [
  ["queued", "in the switch, up to the handoff", ""],
  ["first_byte", "in the node, up to the first byte", "response"],
  ["duration", "in the node, up to the last byte", "response"],
];

/** Shows them in `place`; null if nothing is known. */
export function latencies(place, all) {
  if (all === null || all.length === 0) {
    const words = all === null ? "Not known: nothing is told of responses." : "No request yet.";
    place.replaceChildren(html("p", { class: "none" }, words));
    return;
  }
  const width = Math.max(200, place.querySelector("figure")?.clientWidth ?? 340);
  const pools = all.map((latency) => {
    const title = html("h3", {}, latency.service, html("small", {}, ` to ${latency.pool}`));
    const parts = PARTS.map(([key, words, kind]) => histogram(latency[key], words, kind, width));
    return html("div", { class: "pool" }, title, html("div", { class: "histograms" }, ...parts));
  });
  place.replaceChildren(...pools);
}

function histogram(quantiles, title, kind, width) {
  const { counts } = quantiles;
  const [most, step] = [Math.max(1, ...counts), width / Math.max(counts.length, 1)];
  const columns = counts.map((number, index) => {
    const height = number === 0 ? 0 : Math.max(2, (66 * number) / most);
    const [x, wide] = [index * step + 1, Math.max(1, step - 2)].map((pixels) => pixels.toFixed(1));
    return svg("rect", { class: "column", x, y: 70 - height, width: wide, height, rx: 2 });
  });
  const bounds = BOUNDS.filter(([index], at) => index < counts.length && (width > WIDE || at % 2 === 0));
  const labels = bounds.map(([index, words]) => {
    const x = ((index + 1) * step).toFixed(1);
    return svg("text", { x, y: 86, "text-anchor": "middle" }, words);
  });
  const shown = [["p50", quantiles.p50_us], ["p90", quantiles.p90_us], ["p99", quantiles.p99_us]];
  const spans = shown.map(([name, us]) => html("span", {}, html("small", {}, `${name} `), time(us)));
  const none = quantiles.count === 0;
  const words = none ? "no request" : shown.map(([name, us]) => `${name} ${time(us)}`).join(", ");
  const picture = { viewBox: `0 0 ${width} 92`, role: "img", "aria-label": `${title}: ${words}` };
  return html(
    "figure", { class: kind },
    html("figcaption", {}, title),
    none ? html("p", { class: "none" }, words) : html("p", { class: "quantiles" }, ...spans),
    svg("svg", picture, ...columns, svg("path", { class: "base", d: `M0 70.5H${width}` }), ...labels),
  );
}
