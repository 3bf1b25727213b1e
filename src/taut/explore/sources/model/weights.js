// The weights of a language model from a safetensors file, as it is embedded in the page.

/** @typedef {Record<string, Float32Array>} Weights */

/** Bytes of a base64 text. @param {string} text */
function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** The number that 16 bits stand for, exactly. @param {number} bits */
export function halfFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

/** Tensors by name, from float16 to float32, which loses nothing. @param {string} base64 @returns {Weights} */
export function readWeights(base64) {
  const bytes = bytesOf(base64);
  const view = new DataView(bytes.buffer);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const table = Float32Array.from({ length: 65536 }, (_, bits) => halfFloat(bits));
  /** @type {Weights} */
  const weights = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (entry.dtype !== "F16") throw new Error(`${name} is ${entry.dtype}, not F16`);
    const [from, to] = entry.data_offsets;
    const values = new Float32Array((to - from) / 2);
    for (let i = 0; i < values.length; i++) values[i] = table[view.getUint16(8 + length + from + 2 * i, true)];
    weights[name] = values;
  }
  return weights;
}
