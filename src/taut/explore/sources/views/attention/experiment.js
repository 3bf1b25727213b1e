// One model before and after what the reader did to it.
import { modelTokenizer, modelWeights } from "../../model/embedded.js";
import { smallestFlip } from "../../model/flip.js";
import { runModel } from "../../model/transformer.js";
import { localConstant } from "../../softmax/constants.js";
import { entropy, softmax } from "../../softmax/softmax.js";
import { stepBounds } from "../../softmax/steps.js";
import { largestIndex, norm, total } from "../../softmax/vectors.js";

/** @typedef {import("../../page/state.js").AttentionState} AttentionState */
/** @typedef {import("../../model/transformer.js").Run} Run */
/** @typedef {import("../../model/transformer.js").Push} Push */
/** @typedef {{scores: number[], weights: number[], output: number[], one: number, two: number, entropy: number}} Row */
/**
 * @typedef {object} Experiment
 * @property {Run} before @property {Run} after
 * @property {{before: Row, after: Row}} row of the chosen head and query
 * @property {number} moved total variation of the row’s weights @property {number | null} ceiling on it, where only this row’s scores were changed
 * @property {number} output relative change of the head’s output @property {number} prediction total variation of the next token’s probabilities
 * @property {{before: number[], after: number[]}} next
 * @property {ReturnType<typeof smallestFlip>} flip
 */

export const MOST_TOKENS = 48;

/** Tokens of the text, before and after one of them is swapped. @param {AttentionState} state */
export function tokensOf({ text, swap }) {
  const tokenizer = modelTokenizer();
  const before = tokenizer.encode(text || " ").slice(0, MOST_TOKENS);
  const after = [...before];
  const other = swap ? tokenizer.encode(swap.text)[0] : undefined;
  if (swap && swap.place < before.length && other !== undefined) after[swap.place] = other;
  return { before, after };
}

/** Runs without interference by model and tokens: they change only when the text does. @type {Map<string, Run>} */
const runs = new Map();

/** @param {import("../../model/embedded.js").ModelName} name @param {number[]} tokens */
function untouched(name, tokens) {
  const wanted = `${name} ${tokens.join()}`;
  const run = runs.get(wanted) ?? runModel(modelWeights(name), tokens);
  if (runs.size > 20) runs.clear();
  runs.set(wanted, run);
  return run;
}

/** @param {Run} run @param {AttentionState} state @param {number} query @param {number} scale @returns {Row} */
function rowOf(run, { layer, head }, query, scale) {
  const { scores, weights, outputs } = run.heads[layer][head];
  const row = scores[query];
  const [one, two] = row.length > 1 ? [localConstant(row, 1, scale).value, localConstant(row, 2, scale).value] : [0, 0];
  return { scores: row, weights: weights[query], output: outputs[query], one, two, entropy: entropy(weights[query]) };
}

/** Where the query is: the last token unless one is chosen. @param {AttentionState} state @param {number} tokens */
export function queryOf({ query }, tokens) {
  return query < 0 || query >= tokens ? tokens - 1 : query;
}

/** @param {import("../../model/embedded.js").ModelName} name @param {AttentionState} state @returns {Experiment} */
export function experiment(name, state) {
  const tokens = tokensOf(state);
  const before = untouched(name, tokens.before);
  const base = untouched(name, tokens.after);
  const { layer, head, temperature, everywhere } = state;
  const query = queryOf(state, tokens.before.length);
  const first = rowOf(before, state, query, 1);
  const flip = smallestFlip(base.heads[layer][head].scores[query]);
  const key = state.key < 0 || state.key > query ? largestIndex(first.weights) : state.key;
  const change = flip && state.flip ? [...flip.change] : Array(query + 1).fill(0);
  change[key] += state.push;
  /** @type {Push[]} */
  const pushes = change.flatMap((amount, place) => (amount ? [{ layer, head, query, key: place, amount }] : []));
  const hot = temperature !== 1;
  const idle = pushes.length === 0 && !hot;
  /** @param {number} l @param {number} h */
  const heat = (l, h) => (everywhere || (l === layer && h === head) ? temperature : 1);
  const after = idle ? base
    : runModel(modelWeights(name), tokens.after, { temperature: heat, pushes }, { run: base, first: everywhere && hot ? 0 : layer });
  const second = rowOf(after, state, query, 1 / temperature);
  const next = { before: softmax(before.logits), after: softmax(after.logits) };
  const scoresOnly = !hot && state.swap === null;
  return {
    before, after, flip, next,
    row: { before: first, after: second },
    moved: variation(first.weights, second.weights),
    ceiling: scoresOnly ? stepBounds(change, 1).least / 2 : null,
    output: norm(second.output.map((value, j) => value - first.output[j]), 2) / norm(first.output, 2),
    prediction: variation(next.before, next.after),
  };
}

/** Half the l1 distance. @param {number[]} p @param {number[]} q */
function variation(p, q) {
  return total(p.map((share, i) => Math.abs(share - q[i]))) / 2;
}
