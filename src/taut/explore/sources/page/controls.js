// Controls with a name, a sentence that explains them, a slider and a field to type in.
import { element, freshId, setAttribute } from "./elements.js";

/**
 * @typedef {object} Slider
 * @property {HTMLElement} node
 * @property {(value: number) => void} show put the slider and the field to a value
 */

/**
 * A slider with a field. ``toSlider`` and ``fromSlider`` bend the scale of the slider, say to a logarithm.
 * @param {object} options
 * @param {string} options.label @param {string} [options.hint] @param {[number, number]} options.range of the slider, in its own units
 * @param {number} [options.step] of the slider @param {[number, number]} options.limits of what may be typed
 * @param {(value: number) => number} [options.toSlider] @param {(place: number) => number} [options.fromSlider]
 * @param {(value: number) => void} options.change @param {(value: number) => string} [options.say] for screen readers
 * @param {string} [options.kind] a class @returns {Slider}
 */
export function slider({ label, hint, range, step = 0.01, limits, toSlider = (v) => v, fromSlider = (v) => v, change, say, kind = "" }) {
  const id = freshId("slider");
  const bar = element("input", { type: "range", id, min: range[0], max: range[1], step, "aria-describedby": hint ? `${id}-hint` : null });
  const field = element("input", { type: "text", inputmode: "decimal", class: "number", "aria-label": `${label}, typed`, autocomplete: "off" });
  /** @param {number} value */
  const set = (value) => change(Math.min(Math.max(value, limits[0]), limits[1]));
  bar.addEventListener("input", () => set(fromSlider(Number(bar.value))));
  field.addEventListener("change", () => {
    const value = typedNumber(field.value);
    field.setAttribute("aria-invalid", String(value === null));
    if (value !== null) set(value);
  });
  const node = element("div", { class: `slider ${kind}` },
    element("label", { for: id }, label), bar, field, hint ? element("p", { class: "hint", id: `${id}-hint` }, hint) : null);
  return {
    node,
    show(value) {
      const place = toSlider(value);
      if (Number(bar.value) !== place) bar.value = String(place);
      setAttribute(bar, "aria-valuetext", say ? say(value) : plain(value));
      if (document.activeElement !== field || field.getAttribute("aria-invalid") !== "true") {
        const text = plain(value);
        if (field.value !== text && document.activeElement !== field) field.value = text;
      }
    },
  };
}

/** @param {number} value */
function plain(value) {
  return value === Infinity ? "∞" : String(Number(value.toPrecision(4)));
}

/** A number as people type it: a comma is a point, a long minus a minus; null if it is none. @param {string} text */
export function typedNumber(text) {
  const tidy = text.trim().replace("−", "-").replace(",", ".");
  if (/^(∞|inf|infinity)$/i.test(tidy)) return Infinity;
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(tidy)) return null;
  return Number(tidy);
}

/** @param {string} text @param {() => void} press @param {string} [kind] @param {string} [hint] */
export function button(text, press, kind = "", hint = "") {
  return element("button", { type: "button", class: kind, click: press, title: hint || null }, text);
}

/** A list to choose from. @param {string} label @param {string[]} names @param {(index: number) => void} choose @param {string} first shown before anything is chosen */
export function chooser(label, names, choose, first) {
  const id = freshId("chooser");
  const select = element("select", { id }, element("option", { value: "" }, first),
    ...names.map((name, i) => element("option", { value: i }, name)));
  select.addEventListener("change", () => {
    if (select.value !== "") choose(Number(select.value));
  });
  return { node: element("div", { class: "chooser" }, element("label", { for: id }, label), select), select };
}

/** A card: heading, a sentence about it, and its content. @param {string} title @param {string} text @param {Node[]} content @param {string} [kind] */
export function card(title, text, content, kind = "") {
  const id = freshId("card");
  return element("section", { class: `card ${kind}`, "aria-labelledby": id },
    element("h3", { id }, title), text ? element("p", { class: "about" }, text) : null, ...content);
}
