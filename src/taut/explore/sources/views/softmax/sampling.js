// 1,000 random directions against the exact value: what sampling misses.
import { button, card } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { rounded } from "../../page/format.js";
import { Plot, roundTicks } from "../../page/plot.js";
import { gaussianDirections, ratesAlong } from "../../softmax/random_directions.js";
import { constantText } from "./headline.js";

export const SAMPLES = 1000;
const BINS = 40;

export class Sampling {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.figure = element("div", { class: "figure" });
    this.result = element("p", { class: "result" });
    const draw = button("Draw 1,000 others", () => store.update("softmax", { seed: store.state.softmax.seed + 1 }));
    this.node = card("What does random testing miss?",
      "Push the logits in 1,000 random directions and count how fast the probabilities change. The line is the true worst case, which no sample needs to come near.",
      [this.figure, this.result, draw], "sampling");
    /** @type {number[][]} */
    this.directions = [];
    this.drawnFor = "";
  }

  /** Rates along the directions of this seed. @param {number[]} logits @param {number} p @param {number} scale @param {number} seed */
  rates(logits, p, scale, seed) {
    const wanted = `${logits.length} ${seed}`;
    if (this.drawnFor !== wanted) this.directions = gaussianDirections(logits.length, SAMPLES, seed);
    this.drawnFor = wanted;
    return ratesAlong(logits, this.directions, p, scale);
  }

  /** @param {number[]} rates @param {import("../../softmax/constants.js").Constant} constant @param {number} scale @param {number} width */
  show(rates, constant, scale, width) {
    const limit = scale / 2;
    const counts = Array(BINS).fill(0);
    for (const rate of rates) counts[Math.min(BINS - 1, Math.floor((rate / limit) * BINS))] += 1;
    const highest = Math.max(...counts);
    const plot = new Plot("How many random pushes reach which rate", width, 200,
      { range: [0, limit * 1.02], label: "how fast the probabilities change", ticks: roundTicks(limit) },
      { range: [0, highest * 1.15], label: "pushes", ticks: roundTicks(highest) });
    counts.forEach((count, i) => {
      const [from, to] = [plot.x((i / BINS) * limit), plot.x(((i + 1) / BINS) * limit)];
      plot.add("rect", { class: "sample", x: from + 0.5, width: to - from - 1, y: plot.y(count), height: plot.floor - plot.y(count) });
    });
    plot.upright(constant.value, "bound");
    if (constant.kind === "bracket") plot.upright(constant.upper, "bound");
    plot.upright(limit, "limit");
    const best = Math.max(...rates);
    this.figure.replaceChildren(plot.svg);
    const missed = Math.max(0, Math.round(100 * (1 - best / constant.value)));
    setText(this.result, `The best of 1,000 reaches ${rounded(best)}; the truth is ${constantText(constant)}. `
      + (missed > 0 ? `Sampling misses ${missed} % of it.` : "In so few dimensions sampling comes close."));
  }
}
