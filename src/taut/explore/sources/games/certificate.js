// What is known about plain iteration before the first round (theorems dsfp-tv, dsfp-2 and dsfp-gap).
import { EPSILON, oscillation } from "../softmax/vectors.js";
import { spectralNorm } from "./linear_algebra.js";

/** @typedef {import("./strategies.js").Payoffs} Payoffs */

/** D, the largest |A_ij − A_kj − A_il + A_kl|. @param {Payoffs} A */
export function interaction(A) {
  let best = 0;
  for (let i = 0; i < A.length; i++) {
    for (let k = i + 1; k < A.length; k++) {
      best = Math.max(best, oscillation(A[i].map((entry, j) => entry - A[k][j])));
    }
  }
  return best * (1 + 8 * EPSILON);
}

/**
 * Plain iteration contracts total variation by ``factor`` a round; below 1 it converges from everywhere.
 * After k ≥ 1 rounds the gap is at most first·rate^(k−1).
 * @param {Payoffs} A @param {number} tau
 */
export function certify(A, tau) {
  const D = interaction(A);
  const threshold = (D / 4) * (1 + 8 * EPSILON);
  const nairThreshold = (spectralNorm(A) / 2) * (1 + 64 * EPSILON);
  const factor = (threshold / tau) ** 2 * (1 + 4 * EPSILON);
  const first = 2 * tau * factor * (1 + 32 * EPSILON);
  const rate = factor * factor * (1 + 16 * EPSILON);
  return { interaction: D, threshold, nairThreshold, factor, contracts: factor < 1, first, rate };
}

/** Rounds after which the gap is at most ``gap``; Infinity without a certificate. @param {{first: number, rate: number}} certificate @param {number} gap */
export function roundsForGap({ first, rate }, gap) {
  if (first <= gap) return 1;
  if (!(rate < 1)) return Infinity;
  return 1 + Math.max(Math.ceil((Math.log(first / gap) / -Math.log(rate)) * (1 + 1e-12)), 0);
}
