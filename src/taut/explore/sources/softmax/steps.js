// What a step of any size can do to the softmax, and what it does (theorems tv-step and softmax-lp).
import { changeAfterStep } from "./softmax.js";
import { EPSILON, norm, oscillation } from "./vectors.js";

/**
 * Bounds on ‖softmax(λ(x + d)) − softmax(λx)‖_p for every x, from the step d alone.
 * @param {readonly number[]} d @param {number} p @param {number} [scale] λ > 0
 */
export function stepBounds(d, p, scale = 1) {
  const diameter = 2 ** (1 / p); // of the simplex; 1 for p = Infinity
  const slack = 1 + (16 + 2 * Math.log2(d.length)) * EPSILON;
  const tanh = diameter * Math.tanh((scale * oscillation(d)) / 4);
  const linear = (scale / 2) * norm(d, p);
  return { tanh, linear, least: Math.min(Math.min(tanh, linear) * slack, diameter * (1 + EPSILON)) };
}

/** The true size of the change in l_p. @param {readonly number[]} x @param {readonly number[]} d @param {number} p @param {number} [scale] */
export function trueStep(x, d, p, scale = 1) {
  return norm(changeAfterStep(x, d, scale), p);
}
