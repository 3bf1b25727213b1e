// Logits at which the theorems are tight, and some that show what the constant depends on.

/**
 * @typedef {object} Preset
 * @property {string} name
 * @property {string} why what to see there
 * @property {number[]} logits
 * @property {number} p
 * @property {number} temperature
 * @property {number} [size] of the step, where that matters
 * @property {number[]} [direction] of the step, where it is not the worst one
 */

/** Logits with the softmax (½−δ, ½−δ, 2δ/(n−2), …). @param {number} n @param {number} delta */
function twoShareAlmostAll(n, delta) {
  const lead = Math.log(((0.5 - delta) * (n - 2)) / (2 * delta));
  return [lead, lead, ...Array(n - 2).fill(0)];
}

/** @type {Preset[]} */
export const PRESETS = [
  { name: "An ordinary row", why: "Three logits, nothing special: the constant is well below the limit.",
    logits: [2, 1, 0], p: 2, temperature: 1 },
  { name: "Two equal logits", why: "With two classes at ½ the limit is attained in every norm (Nair 2025, proposition 2; Newhouse 2025).",
    logits: [0, 0], p: 2, temperature: 1 },
  { name: "One against the rest, l1", why: "At (ln(n−1), 0, …, 0) the top probability is ½: the limit is attained in l1 (Nair 2025, proposition 2).",
    logits: [Math.log(5), 0, 0, 0, 0, 0], p: 1, temperature: 1 },
  { name: "One against the rest, l∞", why: "The same point attains the limit in l∞ too, but stays below it in between.",
    logits: [Math.log(5), 0, 0, 0, 0, 0], p: Infinity, temperature: 1 },
  { name: "Two share almost all", why: "For 1 < p < ∞ and three or more classes the limit is only approached, along (½−δ, ½−δ, …); here δ = 0.001 (Nair 2025, example 2, corrected).",
    logits: twoShareAlmostAll(5, 0.001), p: 2, temperature: 1 },
  { name: "The same in l3", why: "Example 2 again, in a norm where taut gives a bracket: here both of its sides are near ½.",
    logits: twoShareAlmostAll(5, 0.001), p: 3, temperature: 1 },
  { name: "Example 1 of Nair 2025", why: "Two logits 20 above eight others: a step of 0.0001 moves the output by 0.499999995 of itself.",
    logits: [0, 0, -20, -20, -20, -20, -20, -20, -20, -20], p: 2, temperature: 1, size: 1e-4 },
  { name: "A step that attains the tanh bound", why: "Two classes at x = −d/2: the step carries them to +d/2, and the change is exactly the bound (theorem tv-step).",
    logits: [-1.5, 1.5], p: 1, temperature: 1, size: 6, direction: [1, -1] },
  { name: "Low temperature", why: "The limit is 1/(2τ): at τ = 0.25 a tie reacts four times as strongly as at τ = 1.",
    logits: [1, 1, 0, -1], p: 2, temperature: 0.25 },
  { name: "A confident row", why: "One logit is far ahead: hardly anything moves.",
    logits: [8, 0, 0, 0, 0], p: 2, temperature: 1 },
  { name: "A flat row", why: "Twelve equal logits: each probability is 1/12, and so is the constant in l2.",
    logits: Array(12).fill(0), p: 2, temperature: 1 },
  { name: "Twelve logits, where sampling fails", why: "In twelve dimensions random directions rarely come near the worst one.",
    logits: [3, 2.9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], p: 2, temperature: 1 },
];
