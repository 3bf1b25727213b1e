// A GPT-2 that shows its attention and lets somebody interfere with it.
import { softmax } from "../softmax/softmax.js";
import { added, gelu, layerNorm, linear } from "./layers.js";

export const LAYERS = 5;
export const HEADS = 4;
export const WIDTH = 96;
const SIZE = WIDTH / HEADS; // of a head

/** @typedef {import("./weights.js").Weights} Weights */
/** @typedef {{layer: number, head: number, query: number, key: number, amount: number}} Push added to one score */
/** @typedef {{temperature: (layer: number, head: number) => number, pushes: Push[]}} Interference */
/** @typedef {{scores: number[][], weights: number[][], outputs: number[][]}} Head one row a query, which sees the keys up to itself */
/** @typedef {{tokens: number[], before: Float32Array[], heads: Head[][], logits: number[]}} Run */

/** @type {Interference} */
export const UNTOUCHED = { temperature: () => 1, pushes: [] };

/**
 * Run the model. With an earlier run of the same tokens the layers before ``first`` are taken from it.
 * @param {Weights} weights @param {number[]} tokens @param {Interference} [interference]
 * @param {{run: Run, first: number}} [earlier] @returns {Run}
 */
export function runModel(weights, tokens, interference = UNTOUCHED, earlier) {
  const first = earlier ? earlier.first : 0;
  let x = earlier ? earlier.run.before[first] : embed(weights, tokens);
  const before = earlier ? earlier.run.before.slice(0, first) : [];
  const heads = earlier ? earlier.run.heads.slice(0, first) : [];
  for (let layer = first; layer < LAYERS; layer++) {
    before.push(x);
    const name = `transformer.h.${layer}.`;
    /** @param {Float32Array} input @param {string} part */
    const apply = (input, part) => linear(input, weights[`${name}${part}.weight`], weights[`${name}${part}.bias`]);
    /** @param {Float32Array} input @param {string} part */
    const normed = (input, part) => layerNorm(input, weights[`${name}${part}.weight`], weights[`${name}${part}.bias`]);
    const found = attend(apply(normed(x, "ln_1"), "attn.c_attn"), layer, interference);
    heads.push(found);
    x = added(x, apply(joined(found), "attn.c_proj"));
    x = added(x, apply(gelu(apply(normed(x, "ln_2"), "mlp.c_fc")), "mlp.c_proj"));
  }
  const last = layerNorm(x.slice(-WIDTH), weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"]);
  return { tokens, before, heads, logits: unembed(weights, last) };
}

/** @param {Weights} weights @param {number[]} tokens */
function embed(weights, tokens) {
  const [words, places] = [weights["transformer.wte.weight"], weights["transformer.wpe.weight"]];
  const x = new Float32Array(tokens.length * WIDTH);
  tokens.forEach((token, t) => {
    for (let j = 0; j < WIDTH; j++) x[t * WIDTH + j] = words[token * WIDTH + j] + places[t * WIDTH + j];
  });
  return x;
}

/** Logits of the next token; the output matrix is that of the embedding. @param {Weights} weights @param {Float32Array} x */
function unembed(weights, x) {
  const words = weights["transformer.wte.weight"];
  return Array.from({ length: words.length / WIDTH }, (_, token) => {
    let sum = 0;
    for (let j = 0; j < WIDTH; j++) sum += x[j] * words[token * WIDTH + j];
    return sum;
  });
}

/** All heads of a layer. @param {Float32Array} qkv @param {number} layer @param {Interference} interference @returns {Head[]} */
function attend(qkv, layer, { temperature, pushes }) {
  const tokens = qkv.length / (3 * WIDTH);
  return Array.from({ length: HEADS }, (_, head) => {
    const own = pushes.filter((push) => push.layer === layer && push.head === head);
    const scale = 1 / temperature(layer, head);
    /** @type {Head} */
    const found = { scores: [], weights: [], outputs: [] };
    for (let query = 0; query < tokens; query++) {
      const scores = [];
      for (let key = 0; key <= query; key++) scores.push(score(qkv, head, query, key));
      for (const push of own) if (push.query === query && push.key <= query) scores[push.key] += push.amount;
      const weights = softmax(scores, scale);
      found.scores.push(scores);
      found.weights.push(weights);
      found.outputs.push(weighed(qkv, head, weights));
    }
    return found;
  });
}

/** ⟨q, k⟩/√size. @param {Float32Array} qkv @param {number} head @param {number} query @param {number} key */
function score(qkv, head, query, key) {
  const q = query * 3 * WIDTH + head * SIZE;
  const k = key * 3 * WIDTH + WIDTH + head * SIZE;
  let sum = 0;
  for (let j = 0; j < SIZE; j++) sum += qkv[q + j] * qkv[k + j];
  return sum / Math.sqrt(SIZE);
}

/** The mean of the values under the weights. @param {Float32Array} qkv @param {number} head @param {number[]} weights */
function weighed(qkv, head, weights) {
  const output = Array(SIZE).fill(0);
  weights.forEach((weight, key) => {
    const v = key * 3 * WIDTH + 2 * WIDTH + head * SIZE;
    for (let j = 0; j < SIZE; j++) output[j] += weight * qkv[v + j];
  });
  return output;
}

/** The outputs of the heads side by side. @param {Head[]} heads */
function joined(heads) {
  const tokens = heads[0].outputs.length;
  const x = new Float32Array(tokens * WIDTH);
  heads.forEach(({ outputs }, head) => {
    outputs.forEach((output, t) => x.set(output, t * WIDTH + head * SIZE));
  });
  return x;
}
