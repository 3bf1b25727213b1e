// The games view.
import { announce } from "../../page/announce.js";
import { copyButton, pythonPanel } from "../../page/copying.js";
import { element, setText } from "../../page/elements.js";
import { rounded, roundedUp } from "../../page/format.js";
import { certify } from "../../games/certificate.js";
import { solveGame } from "../../games/equilibrium.js";
import { iterate, rateAtEquilibrium } from "../../games/iteration.js";
import { Convergence, ROUNDS } from "./convergence.js";
import { MatrixPanel } from "./matrix.js";
import { StrategiesCard } from "./strategies_card.js";
import { Threshold } from "./threshold.js";
import { gamesPython } from "./python.js";

export class GamesView {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.matrix = new MatrixPanel(store);
    this.strategies = new StrategiesCard();
    this.convergence = new Convergence();
    this.threshold = new Threshold();
    this.python = pythonPanel("Paste these lines into Python to get the numbers above from the library itself.");
    this.sentence = element("p", { class: "sentence" });
    this.big = element("strong", { class: "big proved" });
    this.kind = element("span", { class: "tag" });
    this.number = "";
    this.node = element("div", { class: "view" },
      element("div", { class: "side" }, this.matrix.node),
      element("div", { class: "cards" },
        element("section", { class: "card wide headline", "aria-label": "The certificate" },
          element("div", { class: "headline-row" },
            element("div", {}, element("h3", {}, "Will they settle down?"), this.sentence),
            element("p", { class: "headline-number" }, this.big, this.kind, copyButton("Copy", () => this.number, "copy small")))),
        element("div", { class: "column" }, this.strategies.node, this.threshold.node),
        element("div", { class: "column" }, this.convergence.node, this.python.node)));
    this.width = 420;
  }

  measure() {
    const width = this.convergence.figure.clientWidth;
    const changed = width !== this.width && width > 0;
    if (width > 0) this.width = width;
    return changed;
  }

  show() {
    const { payoffs, temperature } = this.store.state.games;
    const solution = solveGame(payoffs, temperature);
    const certificate = certify(payoffs, temperature);
    const rate = rateAtEquilibrium(payoffs, temperature, solution.x, solution.y);
    this.matrix.show(this.store.state.games);
    this.strategies.show(solution);
    this.convergence.show(iterate(payoffs, temperature, ROUNDS).gaps, certificate, this.width);
    this.threshold.show(payoffs, temperature, certificate, rate, this.width);
    this.number = String(certificate.factor);
    setText(this.big, certificate.factor < 1000 ? roundedUp(certificate.factor) : ">1000");
    setText(this.kind, "proved, at most");
    const text = certificate.contracts
      ? `Yes, provably. When the players answer each other in turns, each round leaves at most ${roundedUp(certificate.factor)} of a disagreement, wherever they start.`
      : rate < 1 ? `Near the end, yes: a round leaves ${rounded(rate)} of a small disagreement. But there is no promise from every start: that needs τ above ${roundedUp(certificate.threshold)}.`
        : `No: answering in turns, small disagreements grow by ${rounded(rate)} a round. The players would have to be more patient, or warmer: above τ = ${roundedUp(certificate.threshold)} they settle from every start.`;
    setText(this.sentence, text);
    this.python.show(gamesPython(this.store.state.games));
    announce(text, 700);
  }

  redraw() {
    this.show();
  }
}
