// Numbers as text. Sides of bounds are rounded outward, so that what is shown is still a bound.

/** @param {number} value @param {number} [digits] after the point */
export function rounded(value, digits = 4) {
  if (value === Infinity) return "∞";
  if (value !== 0 && Math.abs(value) < 10 ** -digits / 2) return value.toExponential(1).replace("e-", "e−");
  return value.toFixed(digits).replace("-", "−");
}

/** @param {number} value @param {number} [digits] */
export function roundedUp(value, digits = 4) {
  return rounded(Math.ceil(value * 10 ** digits - 1e-9) / 10 ** digits, digits);
}

/** @param {number} value @param {number} [digits] */
export function roundedDown(value, digits = 4) {
  return rounded(Math.floor(value * 10 ** digits + 1e-9) / 10 ** digits, digits);
}

/** A small or large number in few characters. @param {number} value */
export function short(value) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1).replace("-", "−").replace("e+", "e");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** @param {number} share */
export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  if (share < 1 && share > 0.9995) return ">99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** The name of a norm. @param {number} p */
export function normName(p) {
  return p === Infinity ? "l∞" : `l${Number(p.toPrecision(3))}`;
}

/** A number for Python. @param {number} value */
export function pythonNumber(value) {
  if (!Number.isFinite(value)) return value > 0 ? "math.inf" : "-math.inf";
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

/** A list for Python. @param {readonly number[]} values */
export function pythonList(values) {
  return `[${values.map(pythonNumber).join(", ")}]`;
}
