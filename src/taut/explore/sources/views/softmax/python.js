// Python lines that give the numbers of the softmax view.
import { pythonList, pythonNumber } from "../../page/format.js";
import { currentStep } from "./direction.js";

/** @param {import("../../page/state.js").SoftmaxState} state */
export function softmaxPython(state) {
  const { logits, temperature, p, direction } = state;
  const norm = p === Infinity ? "math.inf" : String(p);
  return [
    "import math, numpy as np, taut",
    `x, scale, p = ${pythonList(logits)}, 1 / ${pythonNumber(temperature)}, ${norm}  # scale is 1/temperature`,
    "print(taut.softmax(x, scale=scale))",
    "print(taut.jacobian(x, scale=scale))",
    "print(taut.local_lipschitz(x, p, scale=scale))   # here",
    "print(taut.global_lipschitz(p, scale=scale))     # everywhere",
    "print(taut.worst_direction(x, p, scale=scale))",
    `step = np.array(${pythonList(currentStep(state))})${direction ? "" : "  # along the worst direction"}`,
    "change = taut.softmax(np.add(x, step), scale=scale) - taut.softmax(x, scale=scale)",
    "print(np.linalg.norm(change, p))                 # true change",
    "print(taut.step_bound(step, p, scale=scale))     # ceiling",
    "print(taut.empirical_lipschitz(x, p, scale=scale, samples=1000, epsilon=1e-6))  # other random directions",
  ].join("\n");
}
