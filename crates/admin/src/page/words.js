// Elements, and numbers as people read them.

export const UNKNOWN = "not known";

const SVG = "http://www.w3.org/2000/svg";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
/** As short as it goes. */
export const few = new Intl.NumberFormat("en", { notation: "compact" });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** An HTML element with attributes and children. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Likewise, of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  set(element, attributes);
  element.append(...children);
  return element;
}

/** Changes what is different: what stays the same keeps its animation and the reader's place. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
  return element;
}

/** Likewise, of its text. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** Rows of a table: cells that stay the same are left alone. */
export function rows(body, wanted) {
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

/** A number of things. */
export function count(number) {
  return number === null ? UNKNOWN : whole.format(number);
}

/** A number of things with their name, which has a plural in s. */
export function things(number, name) {
  return `${count(number)} ${name}${number === 1 ? "" : "s"}`;
}

/** A number per second, without its unit. */
export function rate(number) {
  if (number === null) return UNKNOWN;
  if (number === 0) return "0";
  if (number < 0.1) return "< 0.1";
  return number < 10 ? precise.format(Math.round(number * 10) / 10) : whole.format(number);
}

/** Bytes per second as a network has them. */
export function traffic(bytes) {
  const bits = bytes * 8;
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (bits >= size) return `${precise.format(bits / size)} ${unit}`;
  }
  return `${whole.format(bits)} bit/s`;
}

/** A time in microseconds. */
export function time(us) {
  if (us === null) return UNKNOWN;
  if (us < 1000) return `${precise.format(us)} µs`;
  return us < 1e6 ? `${precise.format(us / 1000)} ms` : `${precise.format(us / 1e6)} s`;
}

/** A time in seconds, for which something has lasted. */
export function lasted(seconds) {
  const [days, all, parts] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  const [hours, minutes] = [all % 24, parts % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${seconds} s`;
}

/** A share from 0 to 1. */
export function percent(share) {
  return share === null ? UNKNOWN : `${whole.format(share * 100)}%`;
}

/** A machine's name with the sign of its state, and words about it. */
export function marked({ name, state }, words) {
  const { kind, sign } = standing(state);
  return [
    html("span", { class: `mark state-${kind}`, "aria-hidden": "true" }, sign),
    html("span", { class: "name" }, name),
    " ",
    html("span", { class: "quiet" }, words),
  ];
}

/** What a machine's state is shown by besides its words: a colour and a sign. */
export function standing(state) {
  switch (state) {
    case "up":
    case "serving": return { kind: "up", sign: "●" };
    case "up in part":
    case "draining":
    case "learning":
    case "withdrawn":
    case "leaving": return { kind: "draining", sign: "◐" };
    case "unused": return { kind: "unused", sign: "○" };
    default: return { kind: "ill", sign: "✕" };
  }
}
