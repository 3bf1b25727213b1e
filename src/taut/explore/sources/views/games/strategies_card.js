// Both strategies as bars, and the numbers that say how good they are.
import { card } from "../../page/controls.js";
import { element, setBar } from "../../page/elements.js";
import { percent, rounded, short } from "../../page/format.js";

/** @param {string} title @param {number[]} weights @param {string} kind */
function bars(title, weights, kind) {
  return element("div", { class: "strategy" }, element("h4", {}, title), ...weights.map((weight, i) => {
    const bar = element("span", { class: `bar ${kind}` });
    setBar(bar, weight);
    return element("div", { class: "bar-row" }, element("span", { class: "name" }, String(i + 1)), element("div", { class: "track" }, bar), element("span", { class: "value" }, percent(weight)));
  }));
}

export class StrategiesCard {
  constructor() {
    this.strategies = element("div", { class: "strategies" });
    this.facts = element("dl", { class: "facts" });
    this.node = card("How both will play",
      "At this temperature there is exactly one pair of strategies in which each answers the other.",
      [this.strategies, this.facts]);
  }

  /** @param {ReturnType<import("../../games/equilibrium.js")["solveGame"]>} solution */
  show({ x, y, value, payoff, gap, distance, exploitability }) {
    this.strategies.replaceChildren(bars("Row player", x, "row"), bars("Column player", y, "column"));
    /** @type {[string, string, string][]} */
    const facts = [
      ["row pays on average", rounded(payoff), `${rounded(value)} if randomness is rewarded too`],
      ["duality gap", `at most ${short(gap)}`, "0 at the equilibrium; an upper bound"],
      ["distance to it", `at most ${short(distance)}`, "of both strategies together, in l1"],
      ["what a sharp rival could win", `at most ${rounded(exploitability)}`, "if the players did not care for randomness"]];
    this.facts.replaceChildren(...facts.map(([name, number, note]) => element("div", {}, element("dt", {}, name), element("dd", {}, number), element("dd", { class: "note" }, note))));
  }
}
