// What the page shows: a plain object. Every change is kept for undo and written into the address.
import { fromAddress, toAddress } from "./address.js";

/**
 * @typedef {object} SoftmaxState
 * @property {number[]} logits 2 to 12 @property {number} temperature τ = 1/λ @property {number} p of the norm
 * @property {number} size of the step, in l_p @property {number[] | null} direction of the step; null is the worst one
 * @property {number} seed of the random directions
 *
 * @typedef {object} AttentionState
 * @property {string} text @property {number} layer @property {number} head @property {number} query place of the token that looks; −1 is the last
 * @property {number} temperature @property {boolean} everywhere whether the temperature is that of all heads
 * @property {number} key place of the token whose score is pushed; −1 is the one with the largest weight @property {number} push added to its score
 * @property {boolean} flip @property {{place: number, text: string} | null} swap a token that is changed
 *
 * @typedef {object} GamesState
 * @property {number[][]} payoffs @property {number} temperature
 *
 * @typedef {"softmax" | "attention" | "games"} ViewName
 * @typedef {{view: ViewName, softmax: SoftmaxState, attention: AttentionState, games: GamesState}} State
 */

/** @returns {State} */
export function firstState() {
  return {
    view: "softmax",
    softmax: { logits: [2, 1, 0], temperature: 1, p: 2, size: 1, direction: null, seed: 1 },
    attention: { text: "Good night, good night! parting is such sweet", layer: 3, head: 0, query: -1, temperature: 1,
      everywhere: false, key: -1, push: 0, flip: false, swap: null },
    games: { payoffs: [[1, -1], [-1, 2]], temperature: 1.5 },
  };
}

const TOGETHER = 800; // milliseconds within which changes of the same thing are one step of undo

export class Store {
  /** @param {() => void} render */
  constructor(render) {
    this.state = fromAddress(location.hash, firstState());
    this.render = render;
    /** @type {State[]} */
    this.past = [];
    /** @type {State[]} */
    this.future = [];
    this.lastKind = "";
    this.lastTime = 0;
    this.waiting = false;
    /** Timer of the next change of the address; 0 if it is up to date. @type {ReturnType<typeof setTimeout> | 0} */
    this.pause = 0;
  }

  /**
   * Change a part of one view.
   * @template {ViewName} V
   * @param {V} view @param {Partial<State[V]>} part
   */
  update(view, part) {
    const kind = `${view} ${Object.keys(part).join()}`;
    this.remember(kind);
    this.state = { ...this.state, view, [view]: { ...this.state[view], ...part } };
    this.changed();
  }

  /** @param {ViewName} view */
  open(view) {
    if (view === this.state.view) return;
    this.remember("view");
    this.state = { ...this.state, view };
    this.changed();
  }

  /** Everything at once, as an address gives it. @param {State} state */
  replace(state) {
    this.remember("all");
    this.state = state;
    this.changed();
  }

  /** @param {string} kind */
  remember(kind) {
    const now = performance.now();
    if (kind !== this.lastKind || now - this.lastTime > TOGETHER) this.past.push(this.state);
    if (this.past.length > 200) this.past.shift();
    this.future = [];
    [this.lastKind, this.lastTime] = [kind, now];
  }

  undo() {
    const before = this.past.pop();
    if (before === undefined) return;
    this.future.push(this.state);
    this.state = before;
    this.lastKind = "";
    this.changed();
  }

  redo() {
    const after = this.future.pop();
    if (after === undefined) return;
    this.past.push(this.state);
    this.state = after;
    this.lastKind = "";
    this.changed();
  }

  /** Draw once before the next frame, however many changes come. */
  changed() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.render();
      this.writeAddress();
    });
  }

  /** The browser refuses too many changes of the address, so they wait for a pause. */
  writeAddress() {
    clearTimeout(this.pause || undefined);
    this.pause = setTimeout(() => {
      history.replaceState(null, "", toAddress(this.state));
      this.pause = 0;
    }, 250);
  }
}
