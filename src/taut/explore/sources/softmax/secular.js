// The exact constants of the softmax in l1, l2 and l∞, and the direction that attains the one in l2.
//
// In units of the largest weight: eᵢ = exp(λ(xᵢ − x₁)) for the others, T their sum. Then
// ‖M‖₁ = 2T/(1 + T)², and ‖M‖₂ = X/(1 + T), where X is the root of the secular equation
// G(X) = (1 − X)(T + Σ eᵢ²/(X − eᵢ)) − X between the second weight and 1 (theorem local-2). G is convex
// and falls, so Newton's method climbs from below to the root.
import { EPSILON, largestIndex, norm, total } from "./vectors.js";

/**
 * @typedef {object} Spectrum
 * @property {number[]} weights eᵢ, 0 at the top entry
 * @property {number} top index of the largest logit
 * @property {number} tail T
 * @property {number} root X
 * @property {number} runnerUp the second largest weight
 * @property {number} gap 1 − runnerUp, with all its digits
 * @property {number} depth λ(x₁ − x₂)
 */

const NEWTON_STEPS = 8;

/** @param {readonly number[]} x @param {number} scale λ ≥ 0 @returns {Spectrum} */
export function analyse(x, scale) {
  const top = largestIndex(x);
  const exponents = x.map((entry, i) => (i === top ? -Infinity : scale * (entry - x[top])));
  const weights = exponents.map(Math.exp);
  const tail = total(weights);
  const nearest = Math.max(...exponents);
  const runnerUp = Math.exp(nearest);
  const root = secularRoot(weights, tail, runnerUp);
  return { weights, top, tail, root, runnerUp, gap: -Math.expm1(nearest), depth: -nearest };
}

/** Newton's method from the top-two principal minor. @param {number[]} e @param {number} tail @param {number} second */
function secularRoot(e, tail, second) {
  const sum = 1 + tail;
  const first = tail / sum;
  const other = second * (1 - second / sum);
  let x = (first + other) / 2 + Math.hypot((first - other) / 2, second / sum);
  x = Math.min(Math.max(x, second), 1);
  for (let step = 0; step < NEWTON_STEPS; step++) {
    let linear = tail;
    let squares = 0;
    for (const weight of e) {
      const ratio = safeRatio(weight, x - weight);
      linear += weight * ratio;
      squares += ratio * ratio;
    }
    const move = ((1 - x) * linear - x) / (1 + linear + (1 - x) * squares);
    x = Math.min(x + Math.max(move, 0), 1);
  }
  return x;
}

/** 0 at a tie, where the pole itself is the answer. @param {number} a @param {number} b */
function safeRatio(a, b) {
  return b > 0 ? a / b : 0;
}

/** λ‖M‖₁ = λ‖M‖_∞ and λ‖M‖₂. @param {Spectrum} spectrum @param {number} scale */
export function exactConstants({ tail, root }, scale) {
  const sum = 1 + tail;
  return { one: scale * ((2 * tail) / (sum * sum)), two: scale * (root / sum) };
}

/** Bound on the relative rounding error of both constants. @param {Spectrum} spectrum */
export function relativeError({ weights, depth }) {
  const n = weights.length;
  return (12 + Math.log2(n) + Math.log(n) + Math.min(depth, 2000)) * EPSILON;
}

/**
 * 1 − X and X − e₂ divided by the gap 1 − e₂, from a quadratic equation: subtracting would leave no digit.
 * @param {Spectrum} spectrum
 */
function poleDistances({ weights, root, runnerUp, gap }) {
  const second = largestIndex(weights);
  let rho = 0;
  weights.forEach((weight, i) => (rho += i === second ? 0 : safeRatio(weight, root - weight)));
  const pull = rho * gap;
  const pair = 1 + runnerUp;
  const length = Math.sqrt((pair + pull) * (pair + pull) - 4 * pull);
  const b = pair - pull;
  const sum = b >= 0 ? b + length : (4 * pull * runnerUp) / (length - b);
  return { belowTop: 2 / (pair + pull + length), aboveSecond: (2 * runnerUp) / sum };
}

/** Unit eigenvector of the largest eigenvalue, positive at the top entry. @param {Spectrum} spectrum */
export function eigenvector(spectrum) {
  const { weights, top, tail, runnerUp, gap } = spectrum;
  if (tail === 0) return weights.map((_, i) => Number(i === top));
  const { belowTop, aboveSecond } = poleDistances(spectrum);
  const second = largestIndex(weights);
  const v = weights.map((weight, i) => {
    if (i === top) return 1 / belowTop;
    if (i === second) return -safeRatio(runnerUp, aboveSecond);
    return -safeRatio(gap * weight, aboveSecond * gap + (runnerUp - weight));
  });
  const size = norm(v, 2);
  return v.map((entry) => entry / size);
}
