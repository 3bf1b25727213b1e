// The softmax view: its parts, and what each of them is shown.
import { announce } from "../../page/announce.js";
import { pythonPanel } from "../../page/copying.js";
import { element } from "../../page/elements.js";
import { normName } from "../../page/format.js";
import { localConstant } from "../../softmax/constants.js";
import { DirectionPanel, currentStep } from "./direction.js";
import { Headline, constantText } from "./headline.js";
import { JacobianMap } from "./jacobian_map.js";
import { LogitPanel } from "./logits.js";
import { NormCurve } from "./norm_curve.js";
import { Sampling } from "./sampling.js";
import { Sharpness } from "./sharpness.js";
import { Simplex } from "./simplex.js";
import { StepCurve } from "./step_curve.js";
import { softmaxPython } from "./python.js";

export class SoftmaxView {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.logits = new LogitPanel(store);
    this.headline = new Headline();
    this.direction = new DirectionPanel(store);
    this.normCurve = new NormCurve();
    this.jacobian = new JacobianMap();
    this.stepCurve = new StepCurve();
    this.sampling = new Sampling(store);
    this.simplex = new Simplex(store);
    this.sharpness = new Sharpness();
    this.python = pythonPanel("Paste these lines into Python to get the numbers above from the library itself.");
    this.node = element("div", { class: "view" },
      element("div", { class: "side" }, this.logits.node),
      element("div", { class: "cards" }, this.headline.node,
        element("div", { class: "column" }, this.direction.node, this.simplex.node, this.sharpness.node),
        element("div", { class: "column" }, this.normCurve.node, this.stepCurve.node, this.sampling.node, this.jacobian.node),
        this.python.node));
    // Widths are read when the window changes, not while something is dragged.
    this.widths = { figure: 420, wide: 800 };
  }

  /** Read the widths of the figures; whether they changed. */
  measure() {
    const figure = this.normCurve.figure.clientWidth;
    const wide = this.headline.gauge.clientWidth;
    const changed = figure !== this.widths.figure || wide !== this.widths.wide;
    if (figure > 0) this.widths = { figure, wide };
    return changed && figure > 0;
  }

  show() {
    const state = this.store.state.softmax;
    const { logits, temperature, p, size, seed } = state;
    const scale = 1 / temperature;
    const { figure, wide } = this.widths;
    const constant = localConstant(logits, p, scale);
    const rates = this.sampling.rates(logits, p, scale, seed);
    this.logits.show(state);
    this.headline.show(constant, p, scale, Math.max(...rates), wide);
    this.direction.show(state, constant);
    this.normCurve.show(logits, scale, p, figure);
    this.jacobian.show(logits, scale);
    this.stepCurve.show(logits, currentStep(state), p, scale, size, figure);
    this.sampling.show(rates, constant, scale, figure);
    this.simplex.show(logits, p, scale);
    this.sharpness.show(logits, temperature, figure);
    this.python.show(softmaxPython(state));
    announce(`Constant in ${normName(p)}: ${constantText(constant)}`, 700);
  }

  redraw() {
    this.simplex.painted = NaN;
    this.show();
  }
}
