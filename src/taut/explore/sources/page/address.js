// The state of the open view as the part of the address after #, and back. Whatever is wrong in an address is
// left out, so that an old or a hostile link still opens the page.

/** @typedef {import("./state.js").State} State */

const LONGEST_TEXT = 400;

/** @param {number} value */
function written(value) {
  return value === Infinity ? "inf" : String(Number(value.toPrecision(17)));
}

/** @param {State} state */
export function toAddress(state) {
  const words = new URLSearchParams();
  const { view } = state;
  if (view === "softmax") {
    const s = state.softmax;
    words.set("x", s.logits.map(written).join(","));
    words.set("t", written(s.temperature));
    words.set("p", written(s.p));
    words.set("size", written(s.size));
    if (s.direction) words.set("direction", s.direction.map(written).join(","));
    words.set("seed", String(s.seed));
  } else if (view === "attention") {
    const a = state.attention;
    words.set("text", a.text);
    for (const name of /** @type {const} */ (["layer", "head", "query", "key"])) words.set(name, String(a[name]));
    words.set("t", written(a.temperature));
    words.set("push", written(a.push));
    if (a.everywhere) words.set("everywhere", "1");
    if (a.flip) words.set("flip", "1");
    if (a.swap) words.set("swap", `${a.swap.place},${a.swap.text}`);
  } else {
    words.set("a", state.games.payoffs.map((row) => row.map(written).join(",")).join(";"));
    words.set("t", written(state.games.temperature));
  }
  return `#${view}?${words}`;
}

/** @param {string | null} text @param {number} low @param {number} high @param {number} usual */
function number(text, low, high, usual) {
  if (text === null || text.trim() === "") return usual;
  const value = text === "inf" ? Infinity : Number(text);
  return Number.isNaN(value) ? usual : Math.min(Math.max(value, low), high);
}

/** @param {string | null} text @param {number} low @param {number} high @param {number} usual */
function whole(text, low, high, usual) {
  return Math.round(number(text, low, high, usual));
}

/** @param {string | null} text @param {number} limit of the size of each */
function numbers(text, limit) {
  if (!text) return null;
  const found = text.split(",").map((part) => number(part, -limit, limit, NaN));
  return found.some(Number.isNaN) ? null : found;
}

/** @param {string} hash @param {State} usual @returns {State} */
export function fromAddress(hash, usual) {
  const [name, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const words = new URLSearchParams(query);
  const state = { ...usual };
  if (name === "softmax") {
    state.view = "softmax";
    const logits = numbers(words.get("x"), 50);
    const fits = logits !== null && logits.length >= 2 && logits.length <= 12;
    const direction = numbers(words.get("direction"), 1e6);
    const s = usual.softmax;
    state.softmax = {
      logits: fits ? logits : s.logits,
      temperature: number(words.get("t"), 0.05, 20, s.temperature),
      p: number(words.get("p"), 1, Infinity, s.p),
      size: number(words.get("size"), 1e-6, 100, s.size),
      direction: fits && direction?.length === logits.length && direction.some((each) => each !== 0) ? direction : null,
      seed: whole(words.get("seed"), 0, 1e9, s.seed),
    };
  } else if (name === "attention") {
    state.view = "attention";
    state.attention = attentionFrom(words, usual.attention);
  } else if (name === "games") {
    state.view = "games";
    const rows = (words.get("a") ?? "").split(";").map((row) => numbers(row, 1000));
    const width = rows[0]?.length ?? 0;
    const fits = rows.length <= 6 && width >= 1 && width <= 6 && rows.every((row) => row?.length === width);
    state.games = {
      payoffs: fits ? /** @type {number[][]} */ (rows) : usual.games.payoffs,
      temperature: number(words.get("t"), 0.01, 100, usual.games.temperature),
    };
  }
  return state;
}

/** @param {URLSearchParams} words @param {import("./state.js").AttentionState} usual @returns {import("./state.js").AttentionState} */
function attentionFrom(words, usual) {
  const swap = /^(\d{1,3}),(.{1,40})$/s.exec(words.get("swap") ?? "");
  return {
    text: (words.get("text") ?? usual.text).slice(0, LONGEST_TEXT),
    layer: whole(words.get("layer"), 0, 4, usual.layer),
    head: whole(words.get("head"), 0, 3, usual.head),
    query: whole(words.get("query"), -1, 255, usual.query),
    temperature: number(words.get("t"), 0.05, 20, usual.temperature),
    everywhere: words.get("everywhere") === "1",
    key: whole(words.get("key"), -1, 255, usual.key),
    push: number(words.get("push"), -20, 20, usual.push),
    flip: words.get("flip") === "1",
    swap: swap ? { place: Number(swap[1]), text: swap[2] } : null,
  };
}
