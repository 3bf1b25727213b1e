// Colour scales that people with any kind of colour vision can read, in light and in dark.

/** @typedef {[number, number, number]} Colour */

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** @param {() => void} redraw */
export function onThemeChange(redraw) {
  dark.addEventListener("change", redraw);
}

/** @param {Colour[]} stops @param {number} share 0 to 1 @returns {Colour} */
function between(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const t = place - i;
  /** @param {0 | 1 | 2} k */
  const mix = (k) => Math.round(stops[i][k] * (1 - t) + stops[i + 1][k] * t);
  return [mix(0), mix(1), mix(2)];
}

/** @type {Colour[]} */
const VIRIDIS = [[68, 1, 84], [70, 50, 126], [54, 92, 141], [39, 127, 142], [31, 161, 135], [74, 193, 109], [160, 218, 57], [253, 231, 37]];
/** @type {Colour[]} */
const BLUE_TO_ORANGE_LIGHT = [[5, 78, 138], [97, 162, 210], [247, 246, 243], [244, 161, 91], [163, 70, 0]];
/** @type {Colour[]} */
const BLUE_TO_ORANGE_DARK = [[110, 190, 250], [45, 105, 160], [28, 33, 40], [163, 84, 20], [255, 176, 102]];
/** @type {Colour[]} */
const PAPER_TO_BLUE = [[247, 246, 243], [158, 198, 228], [48, 122, 185], [5, 48, 97]];
/** @type {Colour[]} */
const NIGHT_TO_BLUE = [[28, 33, 40], [30, 84, 137], [76, 158, 222], [214, 238, 255]];

/** For constants: dark violet is 0, yellow the limit. @param {number} share @returns {Colour} */
export function viridis(share) {
  return between(VIRIDIS, share);
}

/** For signed numbers: blue below 0, orange above. @param {number} share −1 to 1 @returns {Colour} */
export function diverging(share) {
  return between(dark.matches ? BLUE_TO_ORANGE_DARK : BLUE_TO_ORANGE_LIGHT, (share + 1) / 2);
}

/** For weights: paper is 0, deep blue (by night, pale blue) 1. @param {number} share @returns {Colour} */
export function sequential(share) {
  return between(dark.matches ? NIGHT_TO_BLUE : PAPER_TO_BLUE, share);
}

/** @param {Colour} colour */
export function css([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/** Black or white, whichever can be read on the colour. @param {Colour} colour */
export function inkOn([r, g, b]) {
  /** @param {number} c */
  const light = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  return luminance > 0.179 ? "#10151b" : "#ffffff";
}
