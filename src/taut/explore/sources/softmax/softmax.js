// The softmax at inverse temperature λ ("scale"), its Jacobian and its entropy.
import { largestIndex, total } from "./vectors.js";

/**
 * softmax(λx); λ = Infinity gives the limit, uniform over the maxima, −Infinity that over the minima.
 * @param {readonly number[]} x @param {number} [scale]
 */
export function softmax(x, scale = 1) {
  const top = scale >= 0 ? Math.max(...x) : Math.min(...x);
  const limit = !Number.isFinite(scale);
  const weights = x.map((entry) => (limit ? Number(entry === top) : Math.exp(scale * (entry - top))));
  const sum = total(weights);
  return weights.map((weight) => weight / sum);
}

/** λ(Diag(s) − ssᵀ). 1 − sᵢ is the sum of the others: subtracting would lose digits on peaked rows.
 * @param {readonly number[]} x @param {number} [scale]
 */
export function jacobian(x, scale = 1) {
  const s = softmax(x, scale);
  return s.map((row, i) => {
    const rest = total(s.filter((_, j) => j !== i));
    return s.map((column, j) => scale * (i === j ? row * rest : -row * column));
  });
}

/**
 * Diag(s)v − s⟨s, v⟩. v is measured from its entry at the largest probability, which changes nothing
 * and keeps the digits on a peaked row.
 * @param {readonly number[]} s @param {readonly number[]} v
 */
export function covarianceProduct(s, v) {
  const reference = v[largestIndex(s)];
  let mean = 0;
  for (let i = 0; i < s.length; i++) mean += s[i] * (v[i] - reference);
  return s.map((weight, i) => weight * (v[i] - reference - mean));
}

/**
 * softmax(λ(x + d)) − softmax(λx). For small steps nothing nearby is subtracted.
 * @param {readonly number[]} x @param {readonly number[]} d @param {number} [scale]
 */
export function changeAfterStep(x, d, scale = 1) {
  const s = softmax(x, scale);
  if (d.every((entry) => Math.abs(scale * entry) <= 1)) {
    const growth = d.map((entry) => Math.expm1(scale * entry));
    let mean = 0;
    for (let i = 0; i < s.length; i++) mean += s[i] * growth[i];
    return s.map((weight, i) => (weight * (growth[i] - mean)) / (1 + mean));
  }
  const after = softmax(x.map((entry, i) => entry + d[i]), scale);
  return after.map((weight, i) => weight - s[i]);
}

/** Entropy in nats. @param {readonly number[]} s */
export function entropy(s) {
  return 0 - total(s.map((weight) => (weight > 0 ? weight * Math.log(weight) : 0)));
}
