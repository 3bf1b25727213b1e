// The constant in l_p for other p: a certified bracket (theorem local-p-bracket).
//
// Below: the best quotient ‖Mv‖_q/‖v‖_q that the nonlinear power method finds; every iterate is a lower
// bound. Above: interpolation between the exact constants in l1 and l2. M is symmetric, so that the
// constants for p and its dual exponent agree, and all work is done at q = max(p, p′) ≥ 2.
import { covarianceProduct, softmax } from "./softmax.js";
import { analyse, eigenvector, exactConstants, relativeError } from "./secular.js";
import { EPSILON, dualExponent, largestIndex, norm, scaledToOne, signedPower } from "./vectors.js";

const TRIAL_STEPS = 3;
const STEPS = 30;

/** @param {readonly number[]} x @param {number} p @param {number} scale */
export function bracket(x, p, scale) {
  const q = Math.max(p, dualExponent(p));
  const spectrum = analyse(x, scale);
  const { one, two } = exactConstants(spectrum, scale);
  const error = relativeError(spectrum);
  const s = softmax(x, scale);
  const found = scale * quotient(s, maximiser(x, s, q, scale), q);
  const lower = Math.max(found * (1 - 4 * error - 64 * EPSILON), two * (1 - error));
  const upper = Math.min(interpolated(one, two, q) * (1 + error), scale / 2);
  return { lower: Math.min(lower, upper), upper };
}

/** one^θ two^(1−θ), θ = |1 − 2/q|, rounded up. @param {number} one @param {number} two @param {number} q */
function interpolated(one, two, q) {
  if (one === 0 || two === 0) return 0;
  const share = Math.abs(1 - 2 / q);
  const slack = (8 + Math.abs(Math.log(one)) + Math.abs(Math.log(two))) * EPSILON;
  return one ** share * two ** (1 - share) * (1 + slack);
}

/** Unit vector in l_p at which the quotient reaches the lower side. @param {readonly number[]} x @param {number} p @param {number} scale */
export function powerDirection(x, p, scale) {
  const q = Math.max(p, dualExponent(p));
  const s = softmax(x, scale);
  let v = maximiser(x, s, q, scale);
  if (p < 2) v = signedPower(scaledToOne(covarianceProduct(s, v)), q - 1);
  const size = norm(v, p);
  const top = largestIndex(x);
  if (size === 0) return x.map((_, i) => Number(i === top));
  return v.map((entry) => (v[top] < 0 ? -entry : entry) / size);
}

/** The best start after a few steps, then many steps from it. @param {readonly number[]} x @param {number[]} s @param {number} q @param {number} scale */
function maximiser(x, s, q, scale) {
  let best = s;
  let record = -1;
  for (const start of starts(x, s, scale)) {
    const v = climb(s, start, q, TRIAL_STEPS);
    const reached = quotient(s, v, q);
    if (reached > record) [best, record] = [v, reached];
  }
  return climb(s, best, q, STEPS);
}

/**
 * The l2 eigenvector, and one against the rest. The library also starts from divisions into two large groups, which
 * matters on long flat rows; on 60,000 random rows of up to twelve entries it never did.
 * @param {readonly number[]} x @param {number[]} s @param {number} scale
 */
function starts(x, s, scale) {
  const top = largestIndex(x);
  return [eigenvector(analyse(x, scale)), s.map((_, i) => (i === top ? 1 : -1))];
}

/** Steps v ← ψ_q′(M ψ_q(M v)); the quotient never falls. @param {number[]} s @param {number[]} v @param {number} q @param {number} steps */
function climb(s, v, q, steps) {
  for (let step = 0; step < steps; step++) {
    const u = signedPower(scaledToOne(covarianceProduct(s, v)), q - 1);
    v = signedPower(scaledToOne(covarianceProduct(s, u)), 1 / (q - 1));
  }
  return v;
}

/** ‖Mv‖_q/‖v‖_q. @param {number[]} s @param {number[]} v @param {number} q */
function quotient(s, v, q) {
  const size = norm(v, q);
  return size === 0 ? 0 : norm(covarianceProduct(s, v), q) / size;
}
