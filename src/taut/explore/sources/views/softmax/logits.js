// The left side of the softmax view: logits with their probabilities, temperature and norm.
import { button, chooser, slider } from "../../page/controls.js";
import { element, setBar, setText } from "../../page/elements.js";
import { percent } from "../../page/format.js";
import { PRESETS } from "../../softmax/presets.js";
import { softmax } from "../../softmax/softmax.js";

/** @typedef {import("../../page/state.js").Store} Store */
/** @typedef {import("../../page/state.js").SoftmaxState} SoftmaxState */

export const MOST_LOGITS = 12;

export class LogitPanel {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {{slider: import("../../page/controls.js").Slider, bar: HTMLElement, value: HTMLElement, row: HTMLElement}[]} */
    this.rows = [];
    this.list = element("div", { class: "logits" });
    this.fewer = button("−", () => this.resize(-1), "small", "One logit fewer");
    this.more = button("+", () => this.resize(1), "small", "One logit more");
    this.fewer.setAttribute("aria-label", "One logit fewer");
    this.more.setAttribute("aria-label", "One logit more");
    this.count = element("strong", { "aria-live": "polite" });
    const presets = chooser("Start from", PRESETS.map(({ name }) => name), (index) => this.preset(index), "Choose an example …");
    this.presets = presets.select;
    this.why = element("p", { class: "why" });
    this.temperature = slider({
      label: "Temperature τ", hint: "Low: the largest logit takes all. High: everybody gets the same.",
      range: [-3, 3], step: 0.001, limits: [0.05, 20], toSlider: Math.log, fromSlider: Math.exp,
      change: (temperature) => store.update("softmax", { temperature: Number(temperature.toPrecision(4)) }),
    });
    this.norm = slider({
      label: "Norm: exponent p", hint: "How changes are measured: l1 adds them up, l2 is the usual length, l∞ takes the largest.",
      range: [0, 1], step: 0.005, limits: [1, Infinity], toSlider: (p) => 1 - 1 / p, fromSlider: (place) => rounded(1 / (1 - place)),
      change: (p) => store.update("softmax", { p }), say: (p) => (p === Infinity ? "p is infinite" : `p is ${p}`),
    });
    const norms = element("div", { class: "buttons", role: "group", "aria-label": "Common norms" },
      ...[1, 1.5, 2, 3, Infinity].map((p) => button(p === Infinity ? "∞" : String(p), () => store.update("softmax", { p }), "small")));
    this.node = element("section", { class: "card controls", "aria-label": "Logits and settings" },
      element("h3", {}, "Logits → probabilities"),
      element("p", { class: "about" }, "Logits are scores. Softmax turns them into probabilities, the blue bars. Drag a logit and watch."),
      presets.node, this.why,
      element("div", { class: "stepper" }, this.fewer, this.count, this.more),
      this.list, this.temperature.node, this.norm.node, norms);
  }

  /** @param {number} by */
  resize(by) {
    const { logits } = this.store.state.softmax;
    const next = by > 0 ? [...logits, 0].slice(0, MOST_LOGITS) : logits.slice(0, Math.max(2, logits.length - 1));
    this.store.update("softmax", { logits: next, direction: null });
  }

  /** @param {number} index */
  preset(index) {
    const { logits, p, temperature, size, direction } = PRESETS[index];
    this.store.update("softmax", { logits: [...logits], p, temperature, size: size ?? 1, direction: direction ?? null });
  }

  /** @param {number} n */
  grow(n) {
    while (this.rows.length > n) this.rows.pop()?.row.remove();
    while (this.rows.length < n) {
      const i = this.rows.length;
      const bar = element("span", { class: "bar" });
      const value = element("span", { class: "value" });
      const control = slider({
        label: `Logit ${i + 1}`, range: [-10, 10], step: 0.05, limits: [-50, 50], kind: "logit",
        change: (entry) => {
          const { logits } = this.store.state.softmax;
          this.store.update("softmax", { logits: logits.map((old, k) => (k === i ? entry : old)) });
        },
      });
      const row = element("div", { class: "logit-row" }, control.node, element("div", { class: "track" }, bar), value);
      this.rows.push({ slider: control, bar, value, row });
      this.list.append(row);
    }
  }

  /** @param {SoftmaxState} state */
  show({ logits, temperature, p, direction, size }) {
    this.grow(logits.length);
    setText(this.count, `${logits.length} logits`);
    this.fewer.disabled = logits.length <= 2;
    this.more.disabled = logits.length >= MOST_LOGITS;
    const s = softmax(logits, 1 / temperature);
    this.rows.forEach(({ slider: control, bar, value }, i) => {
      control.show(logits[i]);
      setBar(bar, s[i]);
      setText(value, percent(s[i]));
    });
    this.temperature.show(temperature);
    this.norm.show(p);
    const known = PRESETS.findIndex((preset) => preset.p === p && preset.temperature === temperature
      && String(preset.logits) === String(logits) && String(preset.direction ?? null) === String(direction)
      && (preset.size ?? size) === size);
    this.presets.value = known < 0 ? "" : String(known);
    setText(this.why, known < 0 ? "" : PRESETS[known].why);
  }
}

/** Exponents near 1, 2 and ∞ snap to them, because the constants there are exact. @param {number} p */
function rounded(p) {
  if (p > 100) return Infinity;
  if (Math.abs(p - 2) < 0.04) return 2;
  return Number(p.toPrecision(3));
}
