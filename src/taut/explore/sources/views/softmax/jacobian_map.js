// The Jacobian as a table of coloured cells, which a screen reader can read too.
import { css, diverging, inkOn } from "../../page/colours.js";
import { card } from "../../page/controls.js";
import { element, setText } from "../../page/elements.js";
import { jacobian } from "../../softmax/softmax.js";

export class JacobianMap {
  constructor() {
    this.table = element("table", { class: "heat" });
    this.size = 0;
    /** @type {HTMLTableCellElement[][]} */
    this.cells = [];
    /** Colours as they are: setting them again costs a layout. @type {string[][]} */
    this.painted = [];
    this.node = card("What moves what: the Jacobian",
      "Row i, column j: how fast probability i grows when logit j grows. Orange grows, blue shrinks. Every row adds up to 0.",
      [element("div", { class: "scroll" }, this.table)]);
  }

  /** @param {number} n */
  resize(n) {
    this.size = n;
    this.cells = Array.from({ length: n }, () => Array.from({ length: n }, () => element("td")));
    this.painted = this.cells.map(() => []);
    this.table.classList.toggle("dense", n > 6);
    this.table.replaceChildren(
      element("caption", { class: "hidden" }, "Jacobian of the softmax"),
      element("thead", {}, element("tr", {}, element("td"), ...this.cells.map((_, j) => element("th", { scope: "col" }, `x${j + 1}`)))),
      element("tbody", {}, ...this.cells.map((row, i) => element("tr", {}, element("th", { scope: "row" }, `s${i + 1}`), ...row))));
  }

  /** @param {number[]} logits @param {number} scale */
  show(logits, scale) {
    if (logits.length !== this.size) this.resize(logits.length);
    const J = jacobian(logits, scale);
    this.cells.forEach((row, i) => row.forEach((cell, j) => {
      const value = J[i][j];
      const colour = diverging(value / (scale / 4)); // no entry is larger than λ/4
      const paint = `background: ${css(colour)}; color: ${inkOn(colour)}`;
      if (this.painted[i][j] !== paint) {
        this.painted[i][j] = paint;
        cell.style.background = css(colour);
        cell.style.color = inkOn(colour);
      }
      setText(cell, value.toFixed(this.size > 6 ? 2 : 3).replace(/^-(0\.0*)$/, "$1").replace("-", "−"));
    }));
  }
}
