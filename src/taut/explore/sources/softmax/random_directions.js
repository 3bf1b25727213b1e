// Random directions from a seed, so that everybody who opens a link sees the same ones.
import { covarianceProduct, softmax } from "./softmax.js";
import { norm } from "./vectors.js";

/** Uniform numbers in (0, 1) from a seed: the generator mulberry32. @param {number} seed */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
}

/** Gaussian vectors of n entries. @param {number} n @param {number} count @param {number} seed */
export function gaussianDirections(n, count, seed) {
  const draw = randomNumbers(seed);
  const gaussian = () => Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
  return Array.from({ length: count }, () => Array.from({ length: n }, gaussian));
}

/** How fast the softmax changes along each of the directions. @param {readonly number[]} x @param {number[][]} directions @param {number} p @param {number} scale */
export function ratesAlong(x, directions, p, scale) {
  const s = softmax(x, scale);
  return directions.map((v) => (scale * norm(covarianceProduct(s, v), p)) / norm(v, p));
}
