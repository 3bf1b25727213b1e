// The two language models in the page, read when they are first needed.
import { Tokenizer } from "./tokenizer.js";
import { readWeights } from "./weights.js";

/** @typedef {"plain" | "constrained"} ModelName */

/** @param {string} id */
function textOf(id) {
  const node = document.getElementById(id);
  if (node === null) throw new Error(`the page has no ${id}`);
  return node.textContent ?? "";
}

/** @type {Map<string, import("./weights.js").Weights>} */
const known = new Map();
/** @type {Tokenizer | undefined} */
let tokenizer;

/** @param {ModelName} name */
export function modelWeights(name) {
  const found = known.get(name) ?? readWeights(textOf(`weights-${name}`));
  known.set(name, found);
  return found;
}

export function modelTokenizer() {
  tokenizer ??= new Tokenizer(JSON.parse(textOf("tokenizer")));
  return tokenizer;
}
