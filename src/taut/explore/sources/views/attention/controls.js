// What one can do to the models: a text, a token that looks, heat, pushes, and the flip.
import { button, chooser, slider } from "../../page/controls.js";
import { element, freshId, setText } from "../../page/elements.js";
import { queryOf, tokensOf } from "./experiment.js";
import { word } from "./words.js";

/** @typedef {import("../../page/state.js").Store} Store */
/** @typedef {import("../../page/state.js").AttentionState} AttentionState */

const TEXTS = ["To be, or not to be, that is the question", "ROMEO:\nO, she doth teach the torches to burn bright!",
  "KING RICHARD III:\nMy horse, my horse! my kingdom for a", "The quality of mercy is not strain'd, it droppeth as the gentle",
  "Good night, good night! parting is such sweet"];

export class AttentionControls {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    const id = freshId("text");
    this.text = element("textarea", { id, rows: 3, maxlength: 400, spellcheck: "false" });
    this.text.addEventListener("input", () => store.update("attention", { text: this.text.value, query: -1, key: -1, swap: null }));
    const texts = chooser("Or take a line", TEXTS.map((text) => text.replace("\n", " ")), (index) =>
      store.update("attention", { text: TEXTS[index], query: -1, key: -1, swap: null }), "Choose a line …");
    this.texts = texts.select;
    this.tokens = element("div", { class: "chips", role: "group", "aria-label": "The token that looks" });
    this.temperature = slider({ label: "Temperature of the head", hint: "Above 1 the head spreads its attention, below 1 it concentrates.",
      range: [-3, 3], step: 0.01, limits: [0.05, 20], toSlider: Math.log, fromSlider: Math.exp,
      change: (temperature) => store.update("attention", { temperature: Number(temperature.toPrecision(3)) }) });
    this.everywhere = element("input", { type: "checkbox", id: `${id}-all` });
    this.everywhere.addEventListener("change", () => store.update("attention", { everywhere: this.everywhere.checked }));
    this.key = element("select", { id: `${id}-key` });
    this.key.addEventListener("change", () => store.update("attention", { key: Number(this.key.value) }));
    this.push = slider({ label: "Push its score by", hint: "Adds to the score that the looking token gives to that key, in the chosen head.",
      range: [-10, 10], step: 0.05, limits: [-20, 20], change: (push) => store.update("attention", { push }) });
    this.flip = button("Flip it", () => store.update("attention", { flip: !store.state.attention.flip }), "primary");
    this.swap = element("input", { type: "text", id: `${id}-swap`, maxlength: 20, autocomplete: "off", spellcheck: "false" });
    this.swap.addEventListener("input", () => {
      const place = queryOf(store.state.attention, tokensOf(store.state.attention).before.length);
      store.update("attention", { swap: this.swap.value ? { place: store.state.attention.swap?.place ?? place, text: this.swap.value } : null });
    });
    this.swapLabel = element("label", { for: `${id}-swap` });
    /** Tokens that the chips show. @type {string} */
    this.shown = "";
    this.reset = button("Leave the models alone", () => store.update("attention", { temperature: 1, everywhere: false, push: 0, flip: false, swap: null }));
    this.node = element("section", { class: "card controls", "aria-label": "Text and changes" },
      element("h3", {}, "Type, then interfere"),
      element("p", { class: "about" }, "Two small language models of 0.7 million weights read your text, here in the page. They learned from Shakespeare and are tiny: do not expect good verse."),
      element("label", { for: id }, "Your text"), this.text, texts.node,
      element("h4", {}, "Which token looks?"),
      element("p", { class: "hint" }, "Tokens are pieces of words; ␣ is a space, ↵ a new line. Each looks back at the ones before it, and the last one decides what comes next."), this.tokens,
      element("h4", {}, "Flip it"),
      element("p", { class: "hint" }, "Makes the smallest change of scores that lets the second most watched token overtake the first."), this.flip,
      this.temperature.node,
      element("div", { class: "check" }, this.everywhere, element("label", { for: `${id}-all` }, "heat all heads, not just this one")),
      element("h4", {}, "Push one score"),
      element("div", { class: "chooser" }, element("label", { for: `${id}-key` }, "Watched token"), this.key), this.push.node,
      element("h4", {}, "Change a token"),
      element("div", { class: "chooser" }, this.swapLabel, this.swap), this.reset);
  }

  /** @param {AttentionState} state @param {string} flipped what the flip does, in words */
  show(state, flipped) {
    const { before, after } = tokensOf(state);
    const query = queryOf(state, before.length);
    if (document.activeElement !== this.text) this.text.value = state.text;
    this.texts.value = String(TEXTS.indexOf(state.text) < 0 ? "" : TEXTS.indexOf(state.text));
    const marked = after.map((token, place) => `${token}${place === query ? "*" : ""}`).join();
    if (this.shown !== marked) this.chips(after, query);
    this.shown = marked;
    this.temperature.show(state.temperature);
    this.everywhere.checked = state.everywhere;
    this.key.value = String(state.key > query ? -1 : state.key);
    this.push.show(state.push);
    this.flip.setAttribute("aria-pressed", String(state.flip));
    setText(this.flip, state.flip ? "Flip it back" : "Flip it");
    this.flip.title = flipped;
    setText(this.swapLabel, `Write instead of ${word(before[state.swap?.place ?? query] ?? before[query])}`);
    if (document.activeElement !== this.swap) this.swap.value = state.swap?.text ?? "";
    this.reset.disabled = state.temperature === 1 && state.push === 0 && !state.flip && state.swap === null;
  }

  /** @param {number[]} tokens @param {number} query */
  chips(tokens, query) {
    this.tokens.replaceChildren(...tokens.map((token, place) => element("button", { type: "button", class: "chip", "aria-pressed": String(place === query),
      click: () => this.store.update("attention", { query: place, swap: null }) }, word(token))));
    this.key.replaceChildren(element("option", { value: -1 }, "the most watched"),
      ...tokens.slice(0, query + 1).map((token, place) => element("option", { value: place }, `${place}: ${word(token)}`)));
  }
}
