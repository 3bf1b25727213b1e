// Plain iteration: its gap in each round against the certified one.
import { card } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { short } from "../../page/format.js";
import { Plot, legend } from "../../page/plot.js";
import { roundsForGap } from "../../games/certificate.js";

export const ROUNDS = 40;
const FLOOR = 1e-14; // below it rounding is all that is left

export class Convergence {
  constructor() {
    this.figure = element("div", { class: "figure" });
    this.result = element("p", { class: "result" });
    this.node = card("Answer, answer, answer …",
      "The players answer each other in turns, beginning with column 1 alone. The curve is how far from the equilibrium they still are; the line is what the certificate promised before the first turn.",
      [this.figure, legend([["truth", "gap after each round"], ["bound", "promised"]]), this.result], "convergence");
  }

  /** @param {number[]} gaps @param {ReturnType<import("../../games/certificate.js")["certify"]>} certificate @param {number} width */
  show(gaps, certificate, width) {
    const rounds = gaps.map((_, k) => k + 1);
    const promised = rounds.map((k) => certificate.first * certificate.rate ** (k - 1));
    const top = Math.max(...gaps, certificate.contracts ? certificate.first : 0, 1e-3) * 2;
    const plot = new Plot("Gap against rounds", width, 250,
      { range: [1, ROUNDS], label: "round", ticks: [1, 10, 20, 30, 40].map((at) => ({ at, text: String(at) })) },
      { range: [FLOOR, top], by: Math.log10, label: "gap", ticks: [-14, -11, -8, -5, -2, 1].map((power) => ({ at: 10 ** power, text: power === 1 ? "10" : `1e${power}`.replace("-", "−") })).filter(({ at }) => at <= top) });
    const shown = gaps.map((gap) => Math.max(gap, FLOOR));
    if (certificate.contracts) {
      const kept = promised.filter((gap) => gap >= FLOOR);
      plot.line(rounds.slice(0, kept.length), kept, "bound");
    }
    plot.line(rounds, shown, "truth");
    rounds.forEach((k, i) => plot.mark(k, shown[i], "truth", 2.5));
    this.figure.replaceChildren(plot.svg);
    const last = gaps[gaps.length - 1];
    const needed = roundsForGap(certificate, 1e-10);
    setText(this.result, certificate.contracts
      ? `Promised beforehand: a gap of 1e−10 after at most ${needed} rounds. Needed: ${firstBelow(gaps)}.`
      : last < 1e-8 ? "No promise at this temperature, but it converges all the same: the certificate is sufficient, not necessary."
        : `No promise at this temperature, and the players run in circles: after ${ROUNDS} rounds the gap is still ${short(last)}. The strategies on the left come from Newton’s method, which does not need one.`);
  }
}

/** @param {number[]} gaps */
function firstBelow(gaps) {
  const k = gaps.findIndex((gap) => gap <= 1e-10);
  return k < 0 ? `more than ${ROUNDS}` : String(k + 1);
}
