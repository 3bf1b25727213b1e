// A small line plot in SVG: two axes, lines, areas and marks, in pixels of the page.
import { drawn } from "./elements.js";

/**
 * @typedef {object} Axis
 * @property {[number, number]} range
 * @property {{at: number, text: string}[]} ticks
 * @property {string} label
 * @property {(value: number) => number} [by] how numbers become lengths; linear if not given
 */

const MARGIN = { left: 54, right: 14, top: 12, bottom: 40 };

export class Plot {
  /** @param {string} title for screen readers @param {number} width @param {number} height @param {Axis} x @param {Axis} y */
  constructor(title, width, height, x, y) {
    this.width = width;
    this.height = height;
    this.svg = drawn("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title });
    /** @param {Axis} axis @param {number} from @param {number} to */
    const placer = (axis, from, to) => {
      const by = axis.by ?? ((/** @type {number} */ value) => value);
      const [low, high] = axis.range.map(by);
      return (/** @type {number} */ value) => from + ((by(value) - low) / (high - low)) * (to - from);
    };
    this.x = placer(x, MARGIN.left, width - MARGIN.right);
    this.y = placer(y, height - MARGIN.bottom, MARGIN.top);
    this.floor = height - MARGIN.bottom;
    this.axes(x, y);
  }

  /** @param {Axis} x @param {Axis} y */
  axes(x, y) {
    const right = this.width - MARGIN.right;
    for (const { at, text } of y.ticks) {
      this.add("line", { class: "grid", x1: MARGIN.left, x2: right, y1: this.y(at), y2: this.y(at) });
      this.label(MARGIN.left - 6, this.y(at) + 4, text, "end");
    }
    for (const { at, text } of x.ticks) this.label(this.x(at), this.floor + 16, text, "middle");
    this.add("line", { class: "axis", x1: MARGIN.left, x2: right, y1: this.floor, y2: this.floor });
    this.label((MARGIN.left + right) / 2, this.height - 5, x.label, "middle", "axis-label");
    const turned = this.label(0, 0, y.label, "middle", "axis-label");
    turned.setAttribute("transform", `translate(11 ${(MARGIN.top + this.floor) / 2}) rotate(-90)`);
  }

  /** @param {keyof SVGElementTagNameMap} tag @param {import("./elements.js").Attributes} attributes @param {...string} children */
  add(tag, attributes, ...children) {
    const node = drawn(tag, attributes, ...children);
    this.svg.append(node);
    return node;
  }

  /** @param {number} x @param {number} y @param {string} text @param {string} [anchor] @param {string} [kind] */
  label(x, y, text, anchor = "start", kind = "tick") {
    return this.add("text", { x, y, "text-anchor": anchor, class: kind }, text);
  }

  /** @param {number[]} xs @param {number[]} ys @param {string} kind */
  line(xs, ys, kind) {
    this.add("path", { class: `line ${kind}`, d: this.path(xs, ys) });
  }

  /** @param {number[]} xs @param {number[]} ys */
  path(xs, ys) {
    const points = xs.map((x, i) => `${this.x(x).toFixed(1)},${this.y(ys[i]).toFixed(1)}`);
    return points.length ? `M${points.join("L")}` : "";
  }

  /** What lies between two curves. @param {number[]} xs @param {number[]} low @param {number[]} high @param {string} kind */
  area(xs, low, high, kind) {
    const back = this.path([...xs].reverse(), [...low].reverse());
    this.add("path", { class: `area ${kind}`, d: `${this.path(xs, high)}L${back.slice(1)}Z` });
  }

  /** @param {number} x @param {number} y @param {string} kind @param {number} [size] */
  mark(x, y, kind, size = 4) {
    this.add("circle", { class: `mark ${kind}`, cx: this.x(x), cy: this.y(y), r: size });
  }

  /** A vertical line. @param {number} x @param {string} kind */
  upright(x, kind) {
    this.add("line", { class: `line ${kind}`, x1: this.x(x), x2: this.x(x), y1: MARGIN.top, y2: this.floor });
  }

  /** A horizontal line with a word at its right end. @param {number} y @param {string} kind @param {string} text */
  level(y, kind, text) {
    const right = this.width - MARGIN.right;
    this.add("line", { class: `line ${kind}`, x1: MARGIN.left, x2: right, y1: this.y(y), y2: this.y(y) });
    this.label(right - 2, this.y(y) - 5, text, "end", `tick word ${kind}`);
  }
}

/** Round numbers from 0 to about ``highest``, four or five of them. @param {number} highest */
export function roundTicks(highest) {
  const rough = highest / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999) ?? rough;
  const ticks = [];
  for (let at = 0; at <= highest * 1.0001; at += step) ticks.push({ at, text: String(Number(at.toPrecision(3))) });
  return ticks;
}

/** A key to the lines of a plot. @param {[kind: string, text: string][]} entries */
export function legend(entries) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const [kind, text] of entries) {
    const sample = drawn("svg", { width: 22, height: 10, "aria-hidden": "true" });
    sample.append(kind.startsWith("area")
      ? drawn("rect", { class: kind, x: 0, y: 0, width: 22, height: 10 })
      : drawn("line", { class: `line ${kind}`, x1: 0, x2: 22, y1: 5, y2: 5 }));
    const item = document.createElement("li");
    item.append(sample, text);
    list.append(item);
  }
  return list;
}
