// Python lines that give the numbers of the games view.
import { pythonList, pythonNumber } from "../../page/format.js";

/** @param {import("../../page/state.js").GamesState} state */
export function gamesPython({ payoffs, temperature }) {
  const start = payoffs[0].map((_, j) => Number(j === 0));
  return [
    "from taut import games",
    `A, tau = [${payoffs.map(pythonList).join(", ")}], ${pythonNumber(temperature)}  # the row player pays`,
    "solution = games.solve(A, tau)",
    "print(solution)",
    "print(solution.x, solution.y, solution.exploitability)",
    "certificate = games.certify(A, tau)",
    "print(certificate, certificate.iterations(1e-10))",
    "print(games.certify(A, tau, p=2).smallest_temperature)  # Nair 2025",
    `games.solve(A, tau, method="dsfp", start=${pythonList(start)}, max_iterations=40, tolerance=1e-300,`,
    "            callback=print)  # round and best gap so far",
  ].join("\n");
}
