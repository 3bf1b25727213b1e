// All heads of a model as small heat maps, and the chosen one large.
import { sequential } from "../../page/colours.js";
import { element } from "../../page/elements.js";
import { HEADS, LAYERS } from "../../model/transformer.js";

/** @typedef {import("../../page/state.js").Store} Store */

/** Paint weights, one pixel a weight; queries are rows. @param {HTMLCanvasElement} canvas @param {number[][]} weights */
function paint(canvas, weights) {
  const n = weights.length;
  if (canvas.width !== n) canvas.width = canvas.height = n;
  const context = canvas.getContext("2d");
  if (context === null) return;
  const image = context.createImageData(n, n);
  weights.forEach((row, query) => row.forEach((weight, key) => {
    // Roots, because most weights are small and would all look like 0.
    image.data.set([...sequential(Math.sqrt(weight)), 255], 4 * (query * n + key));
  }));
  context.putImageData(image, 0, 0);
}

export class HeadGrid {
  /** @param {Store} store @param {string} name */
  constructor(store, name) {
    this.cells = Array.from({ length: LAYERS * HEADS }, (_, i) => {
      const [layer, head] = [Math.floor(i / HEADS), i % HEADS];
      const canvas = element("canvas", { "aria-hidden": "true" });
      const node = element("button", { type: "button", class: "head", "aria-label": `${name} model, layer ${layer}, head ${head}`,
        click: () => store.update("attention", { layer, head }) }, canvas);
      return { layer, head, canvas, node };
    });
    /** What each map shows; emptied when colours change. @type {Map<HTMLCanvasElement, number[][]>} */
    this.painted = new Map();
    const rows = Array.from({ length: LAYERS }, (_, layer) => [
      element("span", { class: "row-name", "aria-hidden": "true" }, `layer ${layer}`),
      ...this.cells.slice(layer * HEADS, (layer + 1) * HEADS).map(({ node }) => node)]);
    const top = [element("span"), ...Array.from({ length: HEADS }, (_, head) => element("span", { class: "column-name", "aria-hidden": "true" }, `head ${head}`))];
    this.node = element("div", { class: "heads", role: "group", "aria-label": `Heads of the ${name} model` }, ...top, ...rows.flat());
  }

  /** @param {import("../../model/transformer.js").Head[][]} heads @param {{layer: number, head: number}} chosen */
  show(heads, chosen) {
    for (const { layer, head, canvas, node } of this.cells) {
      const { weights } = heads[layer][head];
      if (this.painted.get(canvas) !== weights) paint(canvas, weights); // layers before a change stay as they are
      this.painted.set(canvas, weights);
      node.setAttribute("aria-pressed", String(layer === chosen.layer && head === chosen.head));
    }
  }
}

export class LargeMap {
  /** @param {Store} store @param {string} name */
  constructor(store, name) {
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.frame = element("span", { class: "frame" });
    this.node = element("div", { class: "large-map", tabindex: 0, role: "slider", "aria-label": `${name} model: the token that looks`, "aria-valuemin": 0 }, this.canvas, this.frame);
    this.tokens = 1;
    this.query = 0;
    this.node.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const row = Math.floor(((event.clientY - box.top) / box.height) * this.tokens);
      store.update("attention", { query: Math.min(Math.max(row, 0), this.tokens - 1) });
    });
    this.node.addEventListener("keydown", (event) => {
      const step = /** @type {Record<string, number>} */ ({ ArrowUp: -1, ArrowDown: 1 })[event.key];
      if (!step) return;
      event.preventDefault();
      store.update("attention", { query: Math.min(Math.max(this.query + step, 0), this.tokens - 1) });
    });
  }

  /** @param {number[][]} weights @param {number} query @param {string} word */
  show(weights, query, word) {
    [this.tokens, this.query] = [weights.length, query];
    paint(this.canvas, weights);
    this.frame.style.top = `${(100 * query) / this.tokens}%`;
    this.frame.style.height = `${100 / this.tokens}%`;
    this.node.setAttribute("aria-valuemax", String(this.tokens - 1));
    this.node.setAttribute("aria-valuenow", String(query));
    this.node.setAttribute("aria-valuetext", `token ${query}, ${word}`);
  }
}
