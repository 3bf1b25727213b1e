// Games to begin with. The row player pays what the matrix says.

/** @type {{name: string, why: string, payoffs: number[][], temperature: number}[]} */
export const GAME_PRESETS = [
  { name: "Matching pennies", why: "Here the certified rate is attained: plain iteration stops contracting exactly at τ = 1.",
    payoffs: [[1, -1], [-1, 1]], temperature: 1.5 },
  { name: "Uneven pennies", why: "The second row pays 2 where both choose it, so the players mix unevenly.",
    payoffs: [[1, -1], [-1, 2]], temperature: 1.5 },
  { name: "Rock, paper, scissors", why: "Everybody mixes evenly at every temperature, and iteration is certified above τ = 0.75.",
    payoffs: [[0, 1, -1], [-1, 0, 1], [1, -1, 0]], temperature: 1 },
  { name: "Paper counts double", why: "A win with paper counts double. Lower the temperature and watch scissors rise.",
    payoffs: [[0, 2, -1], [-2, 0, 1], [1, -1, 0]], temperature: 2 },
  { name: "Below the threshold", why: "Too cold for the certificate, and for plain iteration too: it ends in a cycle.",
    payoffs: [[1, -1], [-1, 1]], temperature: 0.5 },
  { name: "Certified here, not by the 2-norm", why: "Constants added to rows and columns change nothing but the value. The certificate of taut does not see them; the condition of Nair (2025) in the 2-norm does.",
    payoffs: [[6, 4, 5], [3, 5, 4], [5, 5, 6]], temperature: 2 },
  { name: "Six by six", why: "Drawn at random. At this temperature nobody plays purely, and the certificate is far from the true rate.",
    payoffs: [[3, -1, 2, 0, -2, 1], [-2, 4, -1, 1, 0, -3], [1, 0, -3, 2, 3, -1], [-1, -2, 1, -4, 2, 3],
      [0, 2, -2, 3, -1, -2], [2, -3, 1, -1, 1, 0]], temperature: 3.5 },
];
