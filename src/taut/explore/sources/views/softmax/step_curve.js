// A step of any size along the push: the true change under two bounds.
import { card } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { normName, rounded, roundedUp } from "../../page/format.js";
import { Plot, legend, roundTicks } from "../../page/plot.js";
import { stepBounds, trueStep } from "../../softmax/steps.js";

const POINTS = Array.from({ length: 61 }, (_, i) => i / 60);

export class StepCurve {
  constructor() {
    this.figure = element("div", { class: "figure" });
    this.result = element("p", { class: "result" });
    this.node = card("Small steps, large steps",
      "How far the probabilities really go along the push, and two ceilings that hold from every starting point: the straight line, good for small steps, and the tanh curve, which never leaves the room that probabilities have.",
      [this.figure, legend([["truth", "true change"], ["bound broad", "proved ceiling, the lower of the two"], ["linear", "straight line"], ["tanh", "tanh curve"]]), this.result]);
  }

  /** @param {number[]} logits @param {number[]} step @param {number} p @param {number} scale @param {number} size @param {number} width */
  show(logits, step, p, scale, size, width) {
    const far = Math.max(2 * size, 6 / scale);
    const xs = POINTS.map((share) => share * far);
    /** @param {number} length */
    const scaled = (length) => step.map((entry) => (entry / size) * length);
    const bounds = xs.map((length) => stepBounds(scaled(length), p, scale));
    const truth = xs.map((length) => trueStep(logits, scaled(length), p, scale));
    const top = 2 ** (1 / p) * 1.08;
    const plot = new Plot("Change of the probabilities against the size of the step", width, 230,
      { range: [0, far], label: `size of the step in ${normName(p)}`, ticks: roundTicks(far) },
      { range: [0, top], label: "change", ticks: roundTicks(top) });
    const cut = xs.filter((_, i) => bounds[i].linear <= top).length;
    plot.area(xs, truth, bounds.map(({ least }) => least), "bound");
    plot.line(xs, bounds.map(({ least }) => least), "bound broad"); // broad, so that the one it is can be seen on it
    plot.line(xs.slice(0, cut), bounds.slice(0, cut).map(({ linear }) => linear), "linear");
    plot.line(xs, bounds.map(({ tanh }) => tanh), "tanh");
    plot.line(xs, truth, "truth");
    plot.upright(size, "here");
    const real = trueStep(logits, step, p, scale);
    plot.mark(size, real, "here", 6);
    this.figure.replaceChildren(plot.svg);
    const { least } = stepBounds(step, p, scale);
    setText(this.result, `At size ${Number(size.toPrecision(3))}: true change ${rounded(real)}, ceiling ${roundedUp(least)}.`);
  }
}
