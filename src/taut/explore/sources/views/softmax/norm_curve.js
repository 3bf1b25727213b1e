// The constant against p, with the limit; shaded where it is known as a bracket.
import { card } from "../../page/controls.js";
import { element } from "../../page/elements.js";
import { Plot, legend, roundTicks } from "../../page/plot.js";
import { localConstant } from "../../softmax/constants.js";

// Places 1 − 1/p: p = 1 is at the left, 2 in the middle, ∞ at the right.
const PLACES = Array.from({ length: 21 }, (_, i) => i / 40);

/** @param {number} place */
function exponentAt(place) {
  return place >= 1 ? Infinity : 1 / (1 - place);
}

export class NormCurve {
  constructor() {
    this.figure = element("div", { class: "figure" });
    this.node = card("In every norm at once",
      "The constant against p. It is exact for p = 1, 2 and ∞ (dots) and lies in the shaded band elsewhere. p and its dual p/(p − 1) give the same value.",
      [this.figure, legend([["truth", "at least (some push reaches it)"], ["bound", "at most (proved)"], ["limit", "limit for all logits"]])]);
  }

  /** @param {number[]} logits @param {number} scale @param {number} p @param {number} width */
  show(logits, scale, p, width) {
    const limit = scale / 2;
    const half = PLACES.map((place) => localConstant(logits, exponentAt(place), scale));
    const all = [...half, ...half.slice(0, -1).reverse()]; // the constant for p is that for its dual
    const xs = all.map((_, i) => i / 40);
    const plot = new Plot("The constant against p", width, 230,
      { range: [0, 1], label: "p of the norm", ticks: [1, 1.25, 1.5, 2, 3, 5, Infinity].map((q) => ({ at: 1 - 1 / q, text: q === Infinity ? "∞" : String(q) })) },
      { range: [0, limit * 1.12], label: "constant", ticks: roundTicks(limit) });
    plot.level(limit, "limit", scale === 1 ? "limit ½" : "limit 1/(2τ)");
    plot.area(xs, all.map(({ lower }) => lower), all.map(({ upper }) => upper), "bound");
    plot.line(xs, all.map(({ upper }) => upper), "bound");
    plot.line(xs, all.map(({ lower }) => lower), "truth");
    for (const q of [1, 2, Infinity]) plot.mark(1 - 1 / q, localConstant(logits, q, scale).value, "truth");
    plot.upright(1 - 1 / p, "here");
    plot.mark(1 - 1 / p, localConstant(logits, p, scale).value, "here", 6);
    this.figure.replaceChildren(plot.svg);
  }
}
