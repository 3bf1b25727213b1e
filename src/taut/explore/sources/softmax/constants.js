// The constant of the softmax at a point in any l_p, with its kind and theorem, and what attains it.
import { bracket, powerDirection } from "./any_p.js";
import { analyse, eigenvector, exactConstants, relativeError } from "./secular.js";
import { covarianceProduct, softmax } from "./softmax.js";
import { largestIndex, norm } from "./vectors.js";

/**
 * @typedef {object} Constant
 * @property {"exact" | "bracket"} kind
 * @property {number} lower
 * @property {number} upper
 * @property {number} value the constant where it is exact, else the lower side
 * @property {string} theorem
 */

/** Local Lipschitz constant of softmax(λx) in l_p. @param {readonly number[]} x @param {number} p @param {number} [scale] λ > 0 @returns {Constant} */
export function localConstant(x, p, scale = 1) {
  if (p !== 1 && p !== 2 && p !== Infinity) {
    const { lower, upper } = bracket(x, p, scale);
    return { kind: "bracket", lower, upper, value: lower, theorem: "local-p-bracket" };
  }
  const spectrum = analyse(x, scale);
  const { one, two } = exactConstants(spectrum, scale);
  const value = p === 2 ? two : one;
  const error = relativeError(spectrum);
  const upper = Math.min(value * (1 + error), scale / 2);
  const theorem = p === 2 ? "local-2" : "local-1-inf";
  return { kind: "exact", lower: value * (1 - error), upper, value: Math.min(value, upper), theorem };
}

/** Unit direction in l_p along which the softmax changes fastest, positive at the largest logit. @param {readonly number[]} x @param {number} p @param {number} [scale] */
export function worstDirection(x, p, scale = 1) {
  const top = largestIndex(x);
  if (p === 1) return x.map((_, i) => Number(i === top));
  if (p === 2) return eigenvector(analyse(x, scale));
  if (p === Infinity) return x.map((_, i) => (i === top ? 1 : -1));
  return powerDirection(x, p, scale);
}

/** λ‖Mv‖_p/‖v‖_p: how fast the softmax changes along v. @param {readonly number[]} x @param {readonly number[]} v @param {number} p @param {number} [scale] */
export function rateAlong(x, v, p, scale = 1) {
  const size = norm(v, p);
  return size === 0 ? 0 : (scale * norm(covarianceProduct(softmax(x, scale), v), p)) / size;
}
