// The layers of GPT-2 on matrices whose rows are tokens, stored one after the other in float32.
// Sums are in double precision, so that the order of the terms does not matter to the fourth digit.

/** x W + b. @param {Float32Array} x @param {Float32Array} weight inputs × outputs @param {Float32Array} bias */
export function linear(x, weight, bias) {
  const outputs = bias.length;
  const inputs = weight.length / outputs;
  const tokens = x.length / inputs;
  const result = new Float32Array(tokens * outputs);
  const sum = new Float64Array(outputs);
  for (let t = 0; t < tokens; t++) {
    sum.set(bias);
    for (let k = 0; k < inputs; k++) {
      const value = x[t * inputs + k];
      const row = k * outputs;
      for (let j = 0; j < outputs; j++) sum[j] += value * weight[row + j];
    }
    result.set(sum, t * outputs);
  }
  return result;
}

/** @param {Float32Array} x @param {Float32Array} gain @param {Float32Array} bias */
export function layerNorm(x, gain, bias) {
  const width = gain.length;
  const result = new Float32Array(x.length);
  for (let from = 0; from < x.length; from += width) {
    let mean = 0;
    for (let j = 0; j < width; j++) mean += x[from + j] / width;
    let variance = 0;
    for (let j = 0; j < width; j++) variance += (x[from + j] - mean) ** 2 / width;
    const size = Math.sqrt(variance + 1e-5);
    for (let j = 0; j < width; j++) result[from + j] = ((x[from + j] - mean) / size) * gain[j] + bias[j];
  }
  return result;
}

/** GELU by tanh, as GPT-2 has it. @param {Float32Array} x */
export function gelu(x) {
  const factor = Math.sqrt(2 / Math.PI);
  return x.map((v) => 0.5 * v * (1 + Math.tanh(factor * (v + 0.044715 * v * v * v))));
}

/** @param {Float32Array} x @param {Float32Array} y */
export function added(x, y) {
  return x.map((value, i) => value + y[i]);
}
