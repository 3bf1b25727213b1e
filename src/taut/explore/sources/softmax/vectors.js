// Vectors are plain arrays of numbers in double precision.

/** The distance from 1 to the next larger number. */
export const EPSILON = 2 ** -52;

/** @param {readonly number[]} v */
export function total(v) {
  let sum = 0;
  for (const entry of v) sum += entry;
  return sum;
}

/** @param {readonly number[]} v @param {readonly number[]} w */
export function dot(v, w) {
  let sum = 0;
  for (let i = 0; i < v.length; i++) sum += v[i] * w[i];
  return sum;
}

/** Index of the largest entry, the first of them if there are several. @param {readonly number[]} v */
export function largestIndex(v) {
  let best = 0;
  for (let i = 1; i < v.length; i++) if (v[i] > v[best]) best = i;
  return best;
}

/** max v − min v. @param {readonly number[]} v */
export function oscillation(v) {
  return Math.max(...v) - Math.min(...v);
}

/**
 * The l_p norm. Entries are divided by the largest first, so that no power overflows.
 * @param {readonly number[]} v @param {number} p 1 to Infinity
 */
export function norm(v, p) {
  let largest = 0;
  for (const entry of v) largest = Math.max(largest, Math.abs(entry));
  if (largest === 0 || p === Infinity) return largest;
  let sum = 0;
  if (p === 1) for (const entry of v) sum += Math.abs(entry);
  if (p === 1) return sum;
  for (const entry of v) {
    const share = Math.abs(entry) / largest;
    sum += p === 2 ? share * share : share ** p;
  }
  return largest * (p === 2 ? Math.sqrt(sum) : sum ** (1 / p));
}

/** The exponent p′ with 1/p + 1/p′ = 1. @param {number} p */
export function dualExponent(p) {
  if (p === 1) return Infinity;
  return p === Infinity ? 1 : p / (p - 1);
}

/** The vector with its largest entry scaled to 1 in size; 0 stays 0. @param {readonly number[]} v */
export function scaledToOne(v) {
  let largest = 0;
  for (const entry of v) largest = Math.max(largest, Math.abs(entry));
  return v.map((entry) => entry / (largest || 1));
}

/** sign(v)|v|^power of each entry. @param {readonly number[]} v @param {number} power */
export function signedPower(v, power) {
  return v.map((entry) => (entry < 0 ? -((-entry) ** power) : entry ** power));
}
