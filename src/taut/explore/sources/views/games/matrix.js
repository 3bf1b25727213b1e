// The payoffs as a table one can type into, and the temperature.
import { button, chooser, slider, typedNumber } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { GAME_PRESETS } from "../../games/presets.js";

/** @typedef {import("../../page/state.js").GamesState} GamesState */

const MOST = 6;

export class MatrixPanel {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.table = element("table", { class: "payoffs" });
    /** @type {HTMLInputElement[][]} */
    this.fields = [];
    this.rows = this.stepper("rows", (by) => this.resize(by, 0));
    this.columns = this.stepper("columns", (by) => this.resize(0, by));
    const presets = chooser("Start from", GAME_PRESETS.map(({ name }) => name), (index) => {
      const { payoffs, temperature } = GAME_PRESETS[index];
      store.update("games", { payoffs: payoffs.map((row) => [...row]), temperature });
    }, "Choose a game …");
    this.presets = presets.select;
    this.why = element("p", { class: "why" });
    this.temperature = slider({ label: "Temperature τ", hint: "How random the players are. Near 0 they play to win, at high temperatures they roll dice.",
      range: [-2, 2], step: 0.005, limits: [0.01, 100], toSlider: Math.log10, fromSlider: (place) => Number((10 ** place).toPrecision(3)),
      change: (temperature) => store.update("games", { temperature }) });
    this.node = element("section", { class: "card controls", "aria-label": "The game" },
      element("h3", {}, "A game of two"),
      element("p", { class: "about" }, "One player picks a row, the other a column. The row player pays the number where they meet."),
      presets.node, this.why,
      element("div", { class: "steppers" }, this.rows.node, this.columns.node),
      element("div", { class: "scroll" }, this.table), this.temperature.node);
  }

  /** @param {string} what @param {(by: number) => void} change */
  stepper(what, change) {
    const count = element("strong");
    const fewer = button("−", () => change(-1), "small");
    const more = button("+", () => change(1), "small");
    fewer.setAttribute("aria-label", `Fewer ${what}`);
    more.setAttribute("aria-label", `More ${what}`);
    return { node: element("div", { class: "stepper" }, fewer, count, more), count, fewer, more };
  }

  /** @param {number} rows @param {number} columns */
  resize(rows, columns) {
    const { payoffs } = this.store.state.games;
    const n = Math.min(Math.max(payoffs.length + rows, 1), MOST);
    const m = Math.min(Math.max(payoffs[0].length + columns, 1), MOST);
    this.store.update("games", { payoffs: Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) => payoffs[i]?.[j] ?? 0)) });
  }

  /** @param {number} n @param {number} m */
  build(n, m) {
    this.fields = Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) => {
      const field = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": `Row ${i + 1} pays column ${j + 1}` });
      field.addEventListener("input", () => {
        const value = typedNumber(field.value);
        field.setAttribute("aria-invalid", String(value === null || !Number.isFinite(value)));
        if (value === null || !Number.isFinite(value)) return;
        const { payoffs } = this.store.state.games;
        const entry = Math.min(Math.max(value, -1000), 1000);
        this.store.update("games", { payoffs: payoffs.map((row, k) => row.map((old, l) => (k === i && l === j ? entry : old))) });
      });
      return field;
    }));
    this.table.replaceChildren(
      element("caption", { class: "hidden" }, "What each row pays to each column"),
      element("thead", {}, element("tr", {}, element("td"), ...Array.from({ length: m }, (_, j) => element("th", { scope: "col", "aria-label": `column ${j + 1}` }, m > 3 ? String(j + 1) : `column ${j + 1}`)))),
      element("tbody", {}, ...this.fields.map((row, i) => element("tr", {}, element("th", { scope: "row" }, `row ${i + 1}`), ...row.map((field) => element("td", {}, field))))));
  }

  /** @param {GamesState} state */
  show({ payoffs, temperature }) {
    const [n, m] = [payoffs.length, payoffs[0].length];
    if (this.fields.length !== n || this.fields[0].length !== m) this.build(n, m);
    this.fields.forEach((row, i) => row.forEach((field, j) => {
      if (document.activeElement !== field) field.value = String(payoffs[i][j]);
    }));
    for (const [part, count] of /** @type {const} */ ([["rows", n], ["columns", m]])) {
      setText(this[part].count, `${count} ${count === 1 ? part.slice(0, -1) : part}`);
      this[part].fewer.disabled = count <= 1;
      this[part].more.disabled = count >= MOST;
    }
    this.temperature.show(temperature);
    const known = GAME_PRESETS.findIndex((preset) => preset.temperature === temperature && String(preset.payoffs) === String(payoffs) && preset.payoffs.length === n);
    this.presets.value = known < 0 ? "" : String(known);
    setText(this.why, known < 0 ? "" : GAME_PRESETS[known].why);
  }
}
