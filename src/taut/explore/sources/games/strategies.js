// Mixed strategies of a zero-sum game with entropies, and how far a pair is from the equilibrium.
//
// min over x, max over y of xᵀAy − τH(x) + τH(y): the row player pays, x answers y by softmax(−Ay/τ), and
// y answers x by softmax(Aᵀx/τ). The gap is written with Kullback–Leibler divergences (theorem gap), so
// that gaps far below the rounding error of a payoff are right.
import { EPSILON, norm } from "../softmax/vectors.js";
import { timesColumn, transposed } from "./linear_algebra.js";

/** @typedef {number[][]} Payoffs what each row pays to each column */
/** @typedef {{logs: number[], weights: number[]}} Mixed */

/** The strategy with these logits. @param {readonly number[]} logits @returns {Mixed} */
export function mixed(logits) {
  const top = Math.max(...logits);
  const raw = logits.map((entry) => Math.exp(entry - top));
  let sum = 0;
  for (const weight of raw) sum += weight;
  const log = Math.log(sum);
  return { logs: logits.map((entry) => entry - top - log), weights: raw.map((w) => w / sum) };
}

/** The row player's best answer. @param {Payoffs} A @param {number} tau @param {readonly number[]} y */
export function answerOfRows(A, tau, y) {
  return mixed(timesColumn(A, y).map((cost) => -cost / tau));
}

/** The column player's best answer. @param {Payoffs} A @param {number} tau @param {readonly number[]} x */
export function answerOfColumns(A, tau, x) {
  return mixed(timesColumn(transposed(A), x).map((gain) => gain / tau));
}

/** KL(p ‖ q) as a sum without negative terms. @param {Mixed} p @param {Mixed} q */
function divergence(p, q) {
  let sum = 0;
  p.logs.forEach((log, i) => {
    const d = log - q.logs[i];
    sum += d < -1 ? q.weights[i] + p.weights[i] * (d - 1) : p.weights[i] * (Math.expm1(-d) + d);
  });
  return sum > 0 ? sum : 0;
}

/** Rounding error of a logit. @param {Payoffs} A @param {number} tau */
function logitError(A, tau) {
  const terms = Math.max(A.length, A[0].length) + 16;
  return EPSILON * terms * (norm(A.flat(), Infinity) / tau + 1);
}

/** Duality gap of a pair, from above. @param {Payoffs} A @param {number} tau @param {Mixed} x @param {Mixed} y */
export function dualityGap(A, tau, x, y) {
  const error = logitError(A, tau);
  const row = Math.sqrt(divergence(x, answerOfRows(A, tau, y.weights))) + error;
  const column = Math.sqrt(divergence(y, answerOfColumns(A, tau, x.weights))) + error;
  return tau * (row * row + column * column) * (1 + 16 * error);
}

/** max Aᵀx − min Ay: what best answers win without entropies. @param {Payoffs} A @param {Mixed} x @param {Mixed} y */
export function exploitability(A, x, y) {
  const gains = timesColumn(transposed(A), x.weights);
  const costs = timesColumn(A, y.weights);
  const error = 4 * (Math.max(A.length, A[0].length) + 16) * EPSILON * norm(A.flat(), Infinity);
  return Math.max(...gains) - Math.min(...costs) + error;
}
