// The limits of sharpness: the probabilities against the temperature.
import { card } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { percent } from "../../page/format.js";
import { Plot } from "../../page/plot.js";
import { softmax } from "../../softmax/softmax.js";

const TEMPERATURES = Array.from({ length: 61 }, (_, i) => 10 ** (-1.7 + (3.4 * i) / 60));

export class Sharpness {
  constructor() {
    this.figure = element("div", { class: "figure" });
    this.result = element("p", { class: "result" });
    this.node = card("From winner-takes-all to everybody-the-same",
      "The same logits at every temperature, one line for each class. At the left end the largest logit has everything (ties share it), at the right end all are equal.",
      [this.figure, this.result]);
  }

  /** @param {number[]} logits @param {number} temperature @param {number} width */
  show(logits, temperature, width) {
    const rows = TEMPERATURES.map((tau) => softmax(logits, 1 / tau));
    const plot = new Plot("Probabilities against the temperature", width, 220,
      { range: [TEMPERATURES[0], TEMPERATURES[60]], by: Math.log, label: "temperature τ",
        ticks: [0.02, 0.1, 0.3, 1, 3, 10, 50].map((at) => ({ at, text: String(at) })) },
      { range: [0, 1.05], label: "probability", ticks: [0, 0.25, 0.5, 0.75, 1].map((at) => ({ at, text: String(at) })) });
    const limit = softmax(logits, Infinity);
    logits.forEach((_, i) => plot.line(TEMPERATURES, rows.map((row) => row[i]), `class-${i % 6}`));
    plot.upright(temperature, "here");
    const here = softmax(logits, 1 / temperature);
    here.forEach((share, i) => plot.mark(temperature, share, `class-${i % 6}`));
    this.labels(plot, rows);
    this.figure.replaceChildren(plot.svg);
    const winners = limit.map((share, i) => (share > 0 ? i + 1 : 0)).filter(Boolean);
    const losers = softmax(logits, -Infinity).map((share, i) => (share > 0 ? i + 1 : 0)).filter(Boolean);
    setText(this.result, `τ → 0: ${winners.length > 1 ? `classes ${winners.join(", ")} share everything, ${percent(1 / winners.length)} each` : `class ${winners[0]} has everything`}. `
      + `τ → ∞: each of ${logits.length} has ${percent(1 / logits.length)}. A negative temperature would favour the smallest: ${losers.length > 1 ? `classes ${losers.join(", ")}` : `class ${losers[0]}`}.`);
  }

  /** Numbers of the classes at the left end, where the lines are apart. @param {Plot} plot @param {number[][]} rows */
  labels(plot, rows) {
    const at = 22; // about where the lines are farthest from each other
    /** @type {number[]} */
    const used = [];
    rows[at].forEach((share, i) => {
      const y = plot.y(share) - 5;
      if (used.some((other) => Math.abs(other - y) < 11)) return;
      used.push(y);
      plot.label(plot.x(TEMPERATURES[at]), y, String(i + 1), "middle", `tick class-${i % 6}`);
    });
  }
}
