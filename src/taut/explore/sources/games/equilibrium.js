// The equilibrium at temperature τ, which is unique: Newton's method in the logarithms of the strategies,
// from a high temperature downwards. Along that path the equilibrium moves smoothly.
import { dot } from "../softmax/vectors.js";
import { solveLinear, timesColumn, transposed } from "./linear_algebra.js";
import { answerOfColumns, answerOfRows, dualityGap, exploitability, mixed } from "./strategies.js";

/** @typedef {import("./strategies.js").Payoffs} Payoffs */
/** @typedef {import("./strategies.js").Mixed} Mixed */
/** @typedef {{x: Mixed, y: Mixed}} Pair */

const ROUNDS = 25; // Newton steps at one temperature
const SHORTEST = 0.9999; // a stride of the temperature that is not worth taking

/**
 * Strategies, value, gap and what follows from it. Halves are added so that the value is in the middle
 * of what the two players can guarantee.
 * @param {Payoffs} A @param {number} tau
 */
export function solveGame(A, tau) {
  const { x, y } = followDown(A, tau);
  const gap = dualityGap(A, tau, x, y);
  const gains = timesColumn(transposed(A), x.weights);
  const costs = timesColumn(A, y.weights);
  const above = tau * logSumExp(gains.map((gain) => gain / tau)) - tau * entropyOf(x);
  const below = tau * entropyOf(y) - tau * logSumExp(costs.map((cost) => -cost / tau));
  return {
    x: x.weights,
    y: y.weights,
    value: below + (above - below) / 2,
    payoff: dot(x.weights, costs),
    gap,
    distance: Math.min(Math.sqrt((2 * gap) / tau), Math.sqrt(8)),
    exploitability: exploitability(A, x, y),
  };
}

/** @param {Mixed} player */
function entropyOf(player) {
  return -dot(player.weights, player.logs);
}

/** @param {number[]} logits */
function logSumExp(logits) {
  const top = Math.max(...logits);
  return top + Math.log(logits.reduce((sum, entry) => sum + Math.exp(entry - top), 0));
}

/** @param {Payoffs} A @param {number} tau @returns {Pair} */
function followDown(A, tau) {
  const flat = A.flat();
  const range = Math.max(...flat) - Math.min(...flat);
  let at = uniform(A);
  let now = Math.max(tau, range);
  let stride = 0.5;
  let solved = now;
  for (let tries = 0; tries < 500; tries++) {
    const found = newton(A, now, at);
    if (found === null) {
      stride = Math.sqrt(stride); // lower more gently from the last temperature that was solved
      if (stride > SHORTEST) break;
      now = Math.max(tau, solved * stride);
      continue;
    }
    at = found;
    if (now === tau) return at;
    solved = now;
    now = Math.max(tau, now * stride);
  }
  return at; // its gap says how good it is
}

/** @param {Payoffs} A @returns {Pair} */
function uniform(A) {
  return { x: mixed(A.map(() => 0)), y: mixed(A[0].map(() => 0)) };
}

/** Newton from a nearby point; null if it does not converge. @param {Payoffs} A @param {number} tau @param {Pair} start */
function newton(A, tau, start) {
  let at = start;
  let best = at;
  let least = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const gap = dualityGap(A, tau, at.x, at.y) / tau;
    const improved = gap < 0.5 * least;
    if (gap < least) [best, least] = [at, gap];
    if (!improved && least < 1e-20) return polish(A, tau, best);
    const step = newtonStep(A, tau, at);
    if (!step.every((entry) => Math.abs(entry) < 700)) return null;
    const n = A.length;
    at = {
      x: mixed(at.x.logs.map((log, i) => log + step[i])),
      y: mixed(at.y.logs.map((log, j) => log + step[n + j])),
    };
  }
  return least < 1e-12 ? best : null;
}

/** One round of answers where they contract: it settles the last digit. @param {Payoffs} A @param {number} tau @param {Pair} at */
function polish(A, tau, at) {
  const other = { x: answerOfRows(A, tau, at.y.weights), y: answerOfColumns(A, tau, at.x.weights) };
  return dualityGap(A, tau, other.x, other.y) < dualityGap(A, tau, at.x, at.y) ? other : at;
}

/**
 * The step for u = log softmax(−A eᵛ/τ), v = log softmax(Aᵀ eᵘ/τ). The means under the player's own
 * strategy are taken off the payoffs first, so that strategies nobody plays have small entries.
 * @param {Payoffs} A @param {number} tau @param {Pair} at
 */
function newtonStep(A, tau, at) {
  const [n, m] = [A.length, A[0].length];
  const [x, y] = [at.x.weights, at.y.weights];
  const costs = timesColumn(A, y);
  const gains = timesColumn(transposed(A), x);
  const byY = A.map((row, i) => row.map((entry, j) => (entry - costs[i]) * y[j]));
  const byX = gains.map((gain, j) => x.map((weight, i) => (A[i][j] - gain) * weight));
  const meanY = y.map((_, j) => byY.reduce((sum, row, i) => sum + x[i] * row[j], 0));
  const meanX = x.map((_, i) => byX.reduce((sum, row, j) => sum + y[j] * row[i], 0));
  const matrix = Array.from({ length: n + m }, (_, i) => Array.from({ length: n + m }, (_, j) => Number(i === j)));
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) matrix[i][n + j] = (byY[i][j] - meanY[j]) / tau;
  for (let j = 0; j < m; j++) for (let i = 0; i < n; i++) matrix[n + j][i] = (meanX[i] - byX[j][i]) / tau;
  const answerX = answerOfRows(A, tau, y).logs;
  const answerY = answerOfColumns(A, tau, x).logs;
  const right = [...answerX.map((log, i) => log - at.x.logs[i]), ...answerY.map((log, j) => log - at.y.logs[j])];
  return solveLinear(matrix, right);
}
