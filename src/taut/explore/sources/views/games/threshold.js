// Where plain iteration stops contracting: its factor against the temperature.
import { card } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { roundedUp, short } from "../../page/format.js";
import { Plot, legend } from "../../page/plot.js";
import { solveGame } from "../../games/equilibrium.js";
import { rateAtEquilibrium } from "../../games/iteration.js";

const PLACES = Array.from({ length: 40 }, (_, i) => i / 39);

export class Threshold {
  constructor() {
    this.figure = element("div", { class: "figure" });
    this.result = element("p", { class: "result" });
    this.node = card("Where it stops contracting",
      "How much of a small disagreement one round leaves over, at each temperature. Below 1 it dies out, above 1 it grows. The true curve is measured at the equilibrium, the other is proved for all strategies.",
      [this.figure, legend([["truth", "at the equilibrium, true"], ["bound broad", "everywhere, at most"], ["nair", "certified by the 2-norm above this τ (Nair 2025)"]]), this.result]);
    this.known = "";
    /** @type {{taus: number[], rates: number[]}} */
    this.curve = { taus: [], rates: [] };
  }

  /** The true rates depend on the payoffs alone, so a moving temperature costs nothing. @param {number[][]} payoffs @param {number} threshold */
  rates(payoffs, threshold) {
    const wanted = JSON.stringify(payoffs);
    if (this.known === wanted) return this.curve;
    const middle = threshold || 1;
    const taus = PLACES.map((place) => middle * 0.25 * 20 ** place);
    const rates = taus.map((tau) => {
      const { x, y } = solveGame(payoffs, tau);
      return rateAtEquilibrium(payoffs, tau, x, y);
    });
    [this.known, this.curve] = [wanted, { taus, rates }];
    return this.curve;
  }

  /** @param {number[][]} payoffs @param {number} tau @param {ReturnType<import("../../games/certificate.js")["certify"]>} certificate @param {number} rate @param {number} width */
  show(payoffs, tau, certificate, rate, width) {
    const { threshold, nairThreshold, factor } = certificate;
    const { taus, rates } = this.rates(payoffs, threshold);
    const [low, high] = [taus[0], taus[taus.length - 1]];
    const top = 2;
    const plot = new Plot("Factor of a round against the temperature", width, 250,
      { range: [low, high], by: Math.log10, label: "temperature τ", ticks: [0.25, 0.5, 1, 2, 5].map((share) => ({ at: share * (threshold || 1), text: short(share * (threshold || 1)) })) },
      { range: [0, top], label: "factor", ticks: [0, 0.5, 1, 1.5, 2].map((at) => ({ at, text: String(at) })) });
    plot.level(1, "limit", "1: stops contracting");
    const proved = taus.map((each) => (threshold / each) ** 2);
    const inside = taus.map((_, i) => i).filter((i) => proved[i] <= top);
    plot.line(inside.map((i) => taus[i]), inside.map((i) => proved[i]), "bound broad");
    const seen = taus.map((_, i) => i).filter((i) => rates[i] <= top);
    plot.line(seen.map((i) => taus[i]), seen.map((i) => rates[i]), "truth");
    if (nairThreshold > low && nairThreshold < high) plot.upright(nairThreshold, "nair");
    if (tau >= low && tau <= high) plot.upright(tau, "here");
    if (tau >= low && tau <= high && rate <= top) plot.mark(tau, rate, "here", 6);
    this.figure.replaceChildren(plot.svg);
    setText(this.result, `Here: ${roundedUp(rate)} at the equilibrium, at most ${roundedUp(factor)} anywhere. Certified for every τ above D/4 = ${roundedUp(threshold)}; `
      + `the condition in the 2-norm asks for τ above ${roundedUp(nairThreshold)}.`);
  }
}
