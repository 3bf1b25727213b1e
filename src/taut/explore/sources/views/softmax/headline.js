// The answer in one sentence, and a gauge from 0 to the limit.
import { element, setText } from "../../page/elements.js";
import { normName, rounded, roundedDown, roundedUp } from "../../page/format.js";
import { copyButton } from "../../page/copying.js";
import { drawn } from "../../page/elements.js";

/** @typedef {import("../../softmax/constants.js").Constant} Constant */

/** @param {Constant} constant */
export function constantText({ kind, lower, upper, value }) {
  return kind === "exact" ? rounded(value) : `${roundedDown(lower)} to ${roundedUp(upper)}`;
}

export class Headline {
  constructor() {
    this.value = element("strong", { class: "big" });
    this.kind = element("span", { class: "tag" });
    this.sentence = element("p", { class: "sentence" });
    this.gauge = element("div", { class: "gauge" });
    this.number = "";
    this.node = element("section", { class: "card wide headline", "aria-label": "The constant" },
      element("div", { class: "headline-row" },
        element("div", {}, element("h3", {}, "How sensitive is softmax here?"), this.sentence),
        element("p", { class: "headline-number" }, this.value, this.kind, copyButton("Copy", () => this.number, "copy small"))),
      this.gauge);
  }

  /** @param {Constant} constant @param {number} p @param {number} scale @param {number} sampled @param {number} width */
  show(constant, p, scale, sampled, width) {
    const limit = scale / 2;
    this.number = constant.kind === "exact" ? String(constant.value) : `[${constant.lower}, ${constant.upper}]`;
    setText(this.value, constantText(constant));
    setText(this.kind, constant.kind === "exact" ? "exact" : "certified bracket");
    const share = Math.round((100 * constant.value) / limit);
    const most = constant.kind === "exact" ? rounded(constant.value) : roundedUp(constant.upper);
    setText(this.sentence, `A small change of the logits changes the probabilities by at most ${most} times as much`
      + `${constant.kind === "exact" ? "" : ` (some push reaches ${roundedDown(constant.lower)})`}, both measured in ${normName(p)}: `
      + `this is the Lipschitz constant of softmax here. Nowhere can it be more than 1/(2τ) = ${rounded(limit)}; this point is at ${share} % of that limit.`);
    this.gauge.replaceChildren(this.draw(constant, limit, sampled, width));
  }

  /** @param {Constant} constant @param {number} limit @param {number} sampled @param {number} width */
  draw({ kind, lower, upper, value }, limit, sampled, width) {
    const [left, right] = [8, width - 8];
    /** @param {number} v */
    const x = (v) => left + (Math.min(v / limit, 1)) * (right - left);
    const svg = drawn("svg", { width, height: 58, viewBox: `0 0 ${width} 58`, role: "img",
      "aria-label": `Gauge from 0 to the limit ${rounded(limit)}: the best random direction reaches ${rounded(sampled)}, the constant is ${constantText({ kind, lower, upper, value, theorem: "" })}` });
    svg.append(
      drawn("rect", { class: "gauge-track", x: left, y: 24, width: right - left, height: 10, rx: 5 }),
      drawn("rect", { class: "gauge-fill", x: left, y: 24, width: Math.max(x(kind === "exact" ? value : lower) - left, 2), height: 10, rx: 5 }));
    if (kind === "bracket") svg.append(drawn("rect", { class: "gauge-bracket", x: x(lower), y: 22, width: Math.max(x(upper) - x(lower), 2), height: 14 }));
    svg.append(
      drawn("line", { class: "gauge-sample", x1: x(sampled), x2: x(sampled), y1: 20, y2: 42 }),
      drawn("line", { class: "gauge-limit", x1: right, x2: right, y1: 14, y2: 42 }),
      gaugeWord(x(sampled), 54, `best of 1,000 random pushes ${rounded(sampled, 3)}`, width),
      gaugeWord(x(kind === "exact" ? value : upper), 14, kind === "exact" ? `worst push ${rounded(value, 3)}` : `at most ${roundedUp(upper, 3)}`, width - 90),
      drawn("text", { class: "tick", x: right, y: 10, "text-anchor": "end" }, `limit ${rounded(limit, 3)}`));
    return svg;
  }
}

/** A word near x that stays inside. @param {number} x @param {number} y @param {string} text @param {number} width */
function gaugeWord(x, y, text, width) {
  const half = text.length * 3.2;
  return drawn("text", { class: "tick", x: Math.min(Math.max(x, half + 4), width - half - 4), y, "text-anchor": "middle" }, text);
}
