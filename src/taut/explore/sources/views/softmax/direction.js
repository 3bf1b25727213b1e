// The worst direction, which one can bend, and what a step along it does to the probabilities.
import { button, card, slider } from "../../page/controls.js";
import { element, setBar, setText } from "../../page/elements.js";
import { normName, percent, rounded } from "../../page/format.js";
import { changeAfterStep, softmax } from "../../softmax/softmax.js";
import { rateAlong, worstDirection } from "../../softmax/constants.js";
import { norm } from "../../softmax/vectors.js";
import { constantText } from "./headline.js";

/** @typedef {import("../../page/state.js").SoftmaxState} SoftmaxState */

/** The step of the state: its direction scaled to its size. @param {SoftmaxState} state */
export function currentStep({ logits, temperature, p, size, direction }) {
  const v = direction ?? worstDirection(logits, p, 1 / temperature);
  const length = norm(v, p);
  return v.map((entry) => (entry / length) * size);
}

export class DirectionPanel {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {{slider: import("../../page/controls.js").Slider, before: HTMLElement, after: HTMLElement, value: HTMLElement, row: HTMLElement}[]} */
    this.rows = [];
    this.list = element("div", { class: "direction" });
    this.result = element("p", { class: "result" });
    this.back = button("Back to the worst direction", () => store.update("softmax", { direction: null }));
    this.size = slider({
      label: "Size of the step", hint: "How far the logits move in total, in the chosen norm.",
      range: [-4, 1.3], step: 0.01, limits: [1e-6, 100], toSlider: Math.log10, fromSlider: (place) => Number((10 ** place).toPrecision(3)),
      change: (size) => store.update("softmax", { size }),
    });
    this.node = card("Push the logits",
      "Each slider is one logit’s share of a push; together they start as the worst push there is. The pale bar is a probability before the push, the full bar after it.",
      [this.list, this.size.node, this.result, this.back], "push");
  }

  /** @param {number} n */
  grow(n) {
    while (this.rows.length > n) this.rows.pop()?.row.remove();
    while (this.rows.length < n) {
      const i = this.rows.length;
      const before = element("span", { class: "bar before" });
      const after = element("span", { class: "bar after" });
      const value = element("span", { class: "value" });
      const control = slider({
        label: `Push on ${i + 1}`, range: [-1, 1], step: 0.01, limits: [-1, 1], kind: "logit",
        change: (entry) => this.bend(i, entry),
      });
      const row = element("div", { class: "logit-row" }, control.node, element("div", { class: "track" }, before, after), value);
      this.rows.push({ slider: control, before, after, value, row });
      this.list.append(row);
    }
  }

  /** @param {number} i @param {number} entry */
  bend(i, entry) {
    const { logits, p, temperature, direction } = this.store.state.softmax;
    const now = (direction ?? worstDirection(logits, p, 1 / temperature)).map((old, k) => (k === i ? entry : old));
    if (!now.some(Boolean)) return; // a push in no direction is none
    this.store.update("softmax", { direction: now });
  }

  /** @param {SoftmaxState} state @param {import("../../softmax/constants.js").Constant} constant */
  show(state, constant) {
    const { logits, temperature, p, size, direction } = state;
    const scale = 1 / temperature;
    this.grow(logits.length);
    const v = direction ?? worstDirection(logits, p, scale);
    const s = softmax(logits, scale);
    const change = changeAfterStep(logits, currentStep(state), scale);
    this.rows.forEach((row, i) => {
      row.slider.show(v[i]);
      const after = s[i] + change[i];
      setBar(row.before, s[i]);
      setBar(row.after, after);
      setText(row.value, percent(Math.max(after, 0)));
    });
    this.size.show(size);
    this.back.disabled = direction === null;
    setText(this.result, `Along this push the probabilities change ${rounded(rateAlong(logits, v, p, scale))} times as fast as the logits; `
      + `no push can do more than ${constantText(constant)}. A step of ${normName(p)} size ${Number(size.toPrecision(3))} really moves them by ${rounded(norm(change, p))}.`);
  }
}
