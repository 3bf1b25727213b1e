// One model: its heads, the chosen row with its numbers, and what the model would write next.
import { css, inkOn, sequential } from "../../page/colours.js";
import { card } from "../../page/controls.js";
import { element, setBar, setText } from "../../page/elements.js";
import { percent, rounded, roundedUp } from "../../page/format.js";
import { HeadGrid, LargeMap } from "./head_grid.js";
import { queryOf } from "./experiment.js";
import { word } from "./words.js";

/** @typedef {import("./experiment.js").Experiment} Experiment */
/** @typedef {import("../../page/state.js").AttentionState} AttentionState */

const SHOWN = 5;

/** Bars with a pale one behind for what was before. @param {{name: string, before: number, after: number}[]} rows @param {string} label */
function comparedBars(rows, label) {
  return element("table", { class: "bars" }, element("caption", { class: "hidden" }, label),
    element("thead", { class: "hidden" }, element("tr", {}, ...["token", "chart", "before", "after"].map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map(({ name, before, after }) => {
      const pale = element("span", { class: "bar before" });
      const full = element("span", { class: "bar after" });
      const same = Math.abs(before - after) < 5e-4;
      setBar(pale, same ? 0 : before);
      setBar(full, after);
      return element("tr", {}, element("th", { scope: "row", class: "token" }, name),
        element("td", { class: "track-cell" }, element("div", { class: "track" }, pale, full)),
        element("td", { class: "value was" }, same ? "" : percent(before)),
        element("td", { class: "value" }, percent(after)));
    })));
}

/** The largest entries of either list, by the larger of the two. @param {number[]} before @param {number[]} after */
function leading(before, after) {
  return before.map((_, i) => i).sort((a, b) => Math.max(before[b], after[b]) - Math.max(before[a], after[a]))
    .slice(0, SHOWN).sort((a, b) => after[b] - after[a]);
}

export class ModelColumn {
  /** @param {import("../../page/state.js").Store} store @param {import("../../model/embedded.js").ModelName} name @param {string} about */
  constructor(store, name, about) {
    this.name = name;
    this.grid = new HeadGrid(store, name);
    this.map = new LargeMap(store, name);
    this.title = element("h4", {});
    this.sentence = element("p", { class: "tokens", "aria-hidden": "true" });
    this.keys = element("div");
    this.numbers = element("tbody");
    this.verdict = element("p", { class: "result" });
    this.next = element("div");
    const table = element("table", { class: "numbers" }, element("caption", { class: "hidden" }, "This row in numbers"),
      element("thead", {}, element("tr", {}, ...["", "before", "after"].map((text) => (text ? element("th", { scope: "col" }, text) : element("td"))))), this.numbers);
    this.node = card(name === "plain" ? "Plain model" : "Constrained model", about, [
      this.grid.node, this.title,
      element("p", { class: "hint" }, "Each row is a token that looks back, each column one that is looked at. The stronger the colour, the more attention. Click a row."),
      this.map.node, this.sentence,
      element("h4", {}, "Where that token looks"), this.keys,
      element("h4", {}, "How sensitive that is"),
      element("p", { class: "hint" }, "The constant says how much of a small change of scores shows in the weights: 0 is calm, 0.5 the limit."), table, this.verdict,
      element("h4", {}, "What the model would write next"), this.next], `model ${name}`);
  }

  /** @param {Experiment} found @param {AttentionState} state */
  show(found, state) {
    const { row, after } = found;
    const tokens = after.tokens;
    const query = queryOf(state, tokens.length);
    this.grid.show(after.heads, state);
    setText(this.title, `Layer ${state.layer}, head ${state.head}`);
    this.map.show(after.heads[state.layer][state.head].weights, query, word(tokens[query]));
    this.sentence.replaceChildren(...tokens.map((token, key) => {
      const weight = key <= query ? row.after.weights[key] : 0;
      const colour = sequential(Math.sqrt(weight));
      const node = element("span", { class: key === query ? "token query" : "token", title: key <= query ? percent(weight) : null }, word(token));
      if (key <= query) [node.style.background, node.style.color] = [css(colour), inkOn(colour)];
      else node.classList.add("unseen");
      return node;
    }));
    const keys = leading(row.before.weights, row.after.weights);
    this.keys.replaceChildren(comparedBars(keys.map((key) => ({
      name: word(tokens[key]), before: row.before.weights[key], after: row.after.weights[key] })), "Weights of the leading keys"));
    this.table(found);
    const next = leading(found.next.before, found.next.after);
    this.next.replaceChildren(comparedBars(next.map((token) => ({
      name: word(token), before: found.next.before[token], after: found.next.after[token] })), "Probabilities of the next token"));
  }

  /** @param {Experiment} found */
  table({ row, moved, ceiling, output, prediction }) {
    /** @type {[string, number, number][]} */
    const rows = [["constant in l2, exact", row.before.two, row.after.two], ["constant in l1 and l∞, exact", row.before.one, row.after.one],
      ["entropy in nats", row.before.entropy, row.after.entropy]];
    this.numbers.replaceChildren(...rows.map(([name, before, after]) => element("tr", {},
      element("th", { scope: "row" }, name), element("td", {}, rounded(before, 3)), element("td", {}, rounded(after, 3)))));
    if (moved < 1e-6 && prediction < 1e-6) return setText(this.verdict, "Nothing is changed yet: heat the head, push a score, change a token or flip it.");
    const limit = ceiling === null ? "" : ` (the scores’ change allows at most ${roundedUp(100 * ceiling, 1)} %)`;
    setText(this.verdict, `${percent(moved)} of the attention went elsewhere${limit}. The head’s output moved by ${percent(output)} of its length, `
      + `and ${percent(prediction)} of the prediction changed.`);
    return undefined;
  }
}
