// "Flip it": the smallest change of a row's scores that lets the second key overtake the first.

/**
 * With a gap g between the two largest scores, the leader must fall and the runner-up rise by g in total.
 * In l2 the least change is g/2 each, of size g/√2; at that size they are level, and any more swaps them.
 * ``beyond`` says how much more, as a share.
 * @param {readonly number[]} scores @param {number} [beyond]
 */
export function smallestFlip(scores, beyond = 0.01) {
  if (scores.length < 2) return null;
  const order = scores.map((_, key) => key).sort((a, b) => scores[b] - scores[a]);
  const [leader, runnerUp] = order;
  const gap = scores[leader] - scores[runnerUp];
  const half = (gap / 2) * (1 + beyond) || 1e-3; // level already: any push decides
  const change = scores.map((_, key) => (key === leader ? -half : key === runnerUp ? half : 0));
  return { leader, runnerUp, gap, size: gap / Math.SQRT2, change };
}
