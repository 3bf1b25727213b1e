// The attention view: two language models, side by side, that one can interfere with.
import { announce } from "../../page/announce.js";
import { copyButton, pythonPanel } from "../../page/copying.js";
import { element, setText } from "../../page/elements.js";
import { percent, rounded, short } from "../../page/format.js";
import { AttentionControls } from "./controls.js";
import { experiment } from "./experiment.js";
import { ModelColumn } from "./model_column.js";
import { attentionPython } from "./python.js";
import { word } from "./words.js";

/** @typedef {import("./experiment.js").Experiment} Experiment */

export class AttentionView {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.controls = new AttentionControls(store);
    this.plain = new ModelColumn(store, "plain", "Trained as usual.");
    this.constrained = new ModelColumn(store, "constrained", "Trained so that small changes do little: caps on its weight matrices, and a price on sharp attention.");
    this.headline = element("p", { class: "sentence" });
    this.numbers = "";
    this.python = pythonPanel("Paste these lines into Python to get the chosen row’s numbers from the library itself.");
    this.node = element("div", { class: "view" },
      element("div", { class: "side" }, this.controls.node),
      element("div", { class: "cards" },
        element("section", { class: "card wide headline", "aria-label": "What happened" }, element("h3", {}, "Does the model care?"), this.headline,
          copyButton("Copy the numbers", () => this.numbers, "copy small")),
        this.plain.node, this.constrained.node, this.python.node));
  }

  measure() {
    return false; // nothing here depends on a width
  }

  show() {
    const state = this.store.state.attention;
    const plain = experiment("plain", state);
    const constrained = experiment("constrained", state);
    this.plain.show(plain, state);
    this.constrained.show(constrained, state);
    this.controls.show(state, this.flipText(plain));
    const text = this.sentence(plain, constrained, state);
    setText(this.headline, text);
    this.python.show(attentionPython(state));
    this.numbers = JSON.stringify({ plain: summary(plain), constrained: summary(constrained) }, null, 1);
    announce(text, 900);
  }

  /** @param {Experiment} found */
  flipText({ flip, after }) {
    if (flip === null) return "The first token sees only itself.";
    return `In the plain model ${word(after.tokens[flip.runnerUp])} overtakes ${word(after.tokens[flip.leader])}.`;
  }

  /** @param {Experiment} plain @param {Experiment} constrained @param {import("../../page/state.js").AttentionState} state */
  sentence(plain, constrained, state) {
    if (state.flip && plain.flip && constrained.flip) {
      return `A change of the scores of size ${short(plain.flip.size)} flips the two most watched tokens in the plain model, ${short(constrained.flip.size)} in the constrained one. `
        + `That changes ${percent(plain.prediction)} of what the plain model would write next, and ${percent(constrained.prediction)} of what the constrained one would. `
        + "A tie is easy to flip; what counts is whether it matters.";
    }
    if (plain.prediction < 1e-6 && constrained.prediction < 1e-6 && plain.moved < 1e-6) {
      return "A head gives every token that it can see a score, and softmax turns the scores into attention. "
        + `Here a small change of the scores moves the attention by at most ${rounded(plain.row.before.two, 3)} times as much in the plain model and `
        + `${rounded(constrained.row.before.two, 3)} in the constrained one (in l2; the limit is 0.5). Flip it, heat it or push it, and see whether the prediction cares.`;
    }
    return `Your change moved ${percent(plain.moved)} of this token’s attention in the plain model and ${percent(constrained.moved)} in the constrained one. `
      + `Of the prediction it changed ${percent(plain.prediction)} and ${percent(constrained.prediction)}.`;
  }

  redraw() {
    for (const { grid } of [this.plain, this.constrained]) grid.painted.clear();
    this.show();
  }
}

/** What is worth copying of an experiment. @param {Experiment} found */
function summary({ row, moved, output, prediction, flip }) {
  const { one, two, entropy } = row.before;
  return { before: { one, two, entropy }, after: { one: row.after.one, two: row.after.two, entropy: row.after.entropy },
    moved, output, prediction, flip: flip?.size ?? null };
}
