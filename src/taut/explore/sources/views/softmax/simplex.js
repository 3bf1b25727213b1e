// All probabilities of three classes as a triangle, coloured by the constant, with the point on it.
import { css, viridis } from "../../page/colours.js";
import { button, card } from "../../page/controls.js";
import { drawn, element, setText } from "../../page/elements.js";
import { normName, rounded } from "../../page/format.js";
import { localConstant } from "../../softmax/constants.js";
import { softmax } from "../../softmax/softmax.js";
import { constantText } from "./headline.js";

const SIZE = 300;
const HEIGHT = Math.round((SIZE * Math.sqrt(3)) / 2);
const MARGIN = 24;

/** Pixel of a point of the simplex: corner 1 is at the top, 2 at the left, 3 at the right. @param {readonly number[]} s */
function place(s) {
  return { x: MARGIN + SIZE * (s[2] + s[0] / 2), y: MARGIN + HEIGHT * (1 - s[0]) };
}

/** Probabilities at a pixel, kept inside. @param {number} x @param {number} y */
function pointAt(x, y) {
  const first = 1 - (y - MARGIN) / HEIGHT;
  const third = (x - MARGIN) / SIZE - first / 2;
  const raw = [first, 1 - first - third, third].map((share) => Math.max(share, 0.002));
  const sum = raw[0] + raw[1] + raw[2];
  return raw.map((share) => share / sum);
}

export class Simplex {
  /** @param {import("../../page/state.js").Store} store */
  constructor(store) {
    this.store = store;
    this.canvas = element("canvas", { width: SIZE + 2 * MARGIN, height: HEIGHT + 2 * MARGIN, "aria-hidden": "true" });
    this.point = drawn("circle", { class: "handle", r: 9, tabindex: 0, role: "slider", "aria-label": "Point in the triangle", "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": 0 });
    this.overlay = drawn("svg", { class: "overlay", viewBox: `0 0 ${SIZE + 2 * MARGIN} ${HEIGHT + 2 * MARGIN}` }, this.point);
    for (const [i, corner] of [[1, 0, 0], [0, 1, 0], [0, 0, 1]].entries()) {
      const { x, y } = place(corner);
      this.overlay.append(drawn("text", { class: "tick", x, y: i === 0 ? y - 8 : y + 18, "text-anchor": "middle" }, `all on ${i + 1}`));
    }
    this.triangle = element("div", { class: "triangle" }, this.canvas, this.overlay);
    this.high = element("span");
    this.key = this.colourKey();
    this.missing = element("p", { class: "about" }, "The triangle is for three logits.",
      button("Use three", () => store.update("softmax", { logits: [...store.state.softmax.logits, 0].slice(0, 3), direction: null })));
    this.value = element("p", { class: "result" });
    this.node = card("The map of all three-way choices",
      "Each point is one way to share 100 % among three classes; yellow is where softmax is most sensitive. Drag the dot, or use the arrow keys.",
      [this.triangle, this.key, this.missing, this.value], "simplex");
    this.listen();
    this.painted = NaN;
  }

  colourKey() {
    const stops = Array.from({ length: 11 }, (_, i) => css(viridis(i / 10)));
    const bar = element("span", { class: "key-bar" });
    bar.style.background = `linear-gradient(90deg, ${stops.join()})`;
    return element("p", { class: "key" }, "0", bar, this.high);
  }

  listen() {
    /** @param {PointerEvent} event */
    const move = (event) => {
      const box = this.overlay.getBoundingClientRect();
      const factor = (SIZE + 2 * MARGIN) / box.width;
      this.moveTo(pointAt((event.clientX - box.left) * factor, (event.clientY - box.top) * factor));
    };
    this.overlay.addEventListener("pointerdown", (event) => {
      this.overlay.setPointerCapture(event.pointerId);
      move(event);
      this.point.focus({ preventScroll: true });
    });
    this.overlay.addEventListener("pointermove", (event) => {
      if (this.overlay.hasPointerCapture(event.pointerId)) move(event);
    });
    this.point.addEventListener("keydown", (event) => {
      const step = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [0, -6], ArrowDown: [0, 6], ArrowLeft: [-6, 0], ArrowRight: [6, 0] })[event.key];
      if (!step) return;
      event.preventDefault();
      const { logits, temperature } = this.store.state.softmax;
      const { x, y } = place(softmax(logits, 1 / temperature));
      this.moveTo(pointAt(x + step[0], y + step[1]));
    });
  }

  /** Logits with mean 0 that give these probabilities. @param {number[]} s */
  moveTo(s) {
    const { temperature } = this.store.state.softmax;
    const logs = s.map((share) => temperature * Math.log(share));
    const mean = (logs[0] + logs[1] + logs[2]) / 3;
    this.store.update("softmax", { logits: logs.map((log) => Number((log - mean).toFixed(3))) });
  }

  /** Colours depend on the norm alone: constants are proportional to λ. @param {number} p */
  paint(p) {
    this.painted = p;
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    const { width, height } = this.canvas;
    const image = context.createImageData(width, height);
    for (let y = 0; y < HEIGHT; y += 2) {
      for (let x = 0; x < SIZE; x += 2) {
        const first = 1 - (y + 1) / HEIGHT;
        const third = (x + 1) / SIZE - first / 2;
        const s = [first, 1 - first - third, third];
        if (s[1] <= 0 || s[2] <= 0) continue;
        const colour = viridis(2 * upperConstant(s, p));
        for (const [dx, dy] of [[0, 0], [1, 0], [0, 1], [1, 1]]) {
          image.data.set([...colour, 255], 4 * ((y + dy + MARGIN) * width + x + dx + MARGIN));
        }
      }
    }
    context.putImageData(image, 0, 0);
  }

  /** @param {number[]} logits @param {number} p @param {number} scale */
  show(logits, p, scale) {
    const three = logits.length === 3;
    this.triangle.hidden = this.key.hidden = this.value.hidden = !three;
    this.missing.hidden = three;
    if (!three) return;
    if (this.painted !== p) this.paint(p);
    const s = softmax(logits, scale);
    const { x, y } = place(s);
    this.point.setAttribute("cx", String(x));
    this.point.setAttribute("cy", String(y));
    this.point.setAttribute("aria-valuetext", s.map((share, i) => `class ${i + 1}: ${Math.round(100 * share)} percent`).join(", "));
    setText(this.high, `limit ${rounded(scale / 2, 3)}`);
    setText(this.value, `At (${s.map((share) => share.toFixed(2)).join(", ")}) the constant in ${normName(p)} is ${constantText(localConstant(logits, p, scale))}.`);
  }
}

/** The proved ceiling of the constant at probabilities s, λ = 1. @param {number[]} s @param {number} p */
function upperConstant(s, p) {
  const logits = s.map(Math.log);
  const one = localConstant(logits, 1).value;
  if (p === 1 || p === Infinity) return one;
  const two = localConstant(logits, 2).value;
  const share = Math.abs(1 - 2 / p);
  return one ** share * two ** (1 - share);
}
