// Plain iteration, y ← softmax(Aᵀ softmax(−Ay/τ)/τ): its gaps, and how fast it is near the equilibrium.
import { eigenvalues, timesColumn, transposed } from "./linear_algebra.js";
import { answerOfColumns, answerOfRows, dualityGap } from "./strategies.js";

/** @typedef {import("./strategies.js").Payoffs} Payoffs */

/**
 * Gap of (softmax(−Ay/τ), T(y)) in each round, and y itself. The column player begins with column 1 alone:
 * from the uniform strategy many games would show nothing, because it is their equilibrium.
 * @param {Payoffs} A @param {number} tau @param {number} rounds
 */
export function iterate(A, tau, rounds) {
  let y = A[0].map((_, j) => Number(j === 0));
  const gaps = [];
  const path = [y];
  for (let round = 0; round < rounds; round++) {
    const x = answerOfRows(A, tau, y);
    const answer = answerOfColumns(A, tau, x.weights);
    gaps.push(dualityGap(A, tau, x, answer));
    y = answer.weights;
    path.push(y);
  }
  return { gaps, path };
}

/**
 * The factor by which one round shrinks small distances at the equilibrium: the spectral radius of
 * M(y)AᵀM(x)A/τ². With roots B of M(y) it is the largest eigenvalue of the symmetric BAᵀM(x)AB.
 * @param {Payoffs} A @param {number} tau @param {number[]} x @param {number[]} y
 */
export function rateAtEquilibrium(A, tau, x, y) {
  // C = √x∘(A − column means under x)∘√y has CᵀC similar to M(y)^½AᵀM(x)AM(y)^½ once row means are off too.
  const gains = timesColumn(transposed(A), x);
  const costs = timesColumn(A, y);
  const mean = x.reduce((sum, weight, i) => sum + weight * costs[i], 0);
  const C = A.map((row, i) =>
    row.map((entry, j) => (Math.sqrt(x[i] * y[j]) * (entry - gains[j] - costs[i] + mean)) / tau),
  );
  return eigenvalues(C.map((row) => timesColumn(C, row)))[0];
}
