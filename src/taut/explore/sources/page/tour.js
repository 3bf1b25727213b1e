// A short guided tour: a box that walks through the page and points at things.
import { button } from "./controls.js";
import { element, setText } from "./elements.js";

/** @typedef {{address: string, target: string, title: string, text: string}} Stop */

/** @type {Stop[]} */
export const STOPS = [
  { address: "#softmax?x=2,1,0&t=1&p=2&size=1&seed=1", target: ".logits", title: "Softmax shares 100 %",
    text: "Three scores, called logits, become three probabilities. Drag a logit and watch the bars." },
  { address: "#softmax?x=2,1,0&t=1&p=2&size=1&seed=1", target: ".headline", title: "How sensitive is it?",
    text: "This number says how much the probabilities can change when the logits change a little. Nowhere can it be more than ½ (at temperature 1)." },
  { address: "#softmax?x=0,0&t=1&p=2&size=1&seed=1", target: ".headline", title: "The tipping point",
    text: "Two equal logits: softmax has to choose between two and is as sensitive as it can ever be." },
  { address: "#softmax?x=3,2.9,0,0,0,0,0,0,0,0,0,0&t=1&p=2&size=1&seed=1", target: ".push", title: "The worst push",
    text: "Of all ways to push twelve logits, this one does most. Bend it: nothing does more." },
  { address: "#softmax?x=3,2.9,0,0,0,0,0,0,0,0,0,0&t=1&p=2&size=1&seed=1", target: ".sampling", title: "Testing is not proving",
    text: "A thousand random pushes stay far below the worst one. That is why taut computes it instead of sampling." },
  { address: "#attention", target: ".model.plain .heads", title: "The same in a language model",
    text: "Attention is softmax too. Each small map is one head: rows look, columns are looked at. Click a head." },
  { address: "#attention?flip=1", target: ".headline", title: "Flip it",
    text: "The smallest change of scores that swaps the two tokens this head watches most. Does the prediction care? Compare the two models." },
  { address: "#games?a=1,-1;-1,2&t=1.5", target: ".headline", title: "Two softmaxes play a game",
    text: "Players who answer each other by softmax settle down if both are calm enough. taut proves it before the first move." },
  { address: "#games?a=1,-1;-1,1&t=0.5", target: ".convergence", title: "Too cold",
    text: "At a low temperature they run in circles. Raise it and see where they stop. That is all: now play." },
];

export class Tour {
  /** @param {(address: string) => void} go */
  constructor(go) {
    this.go = go;
    this.opener = button("Tour", () => this.start(), "primary small");
    this.at = -1;
    this.title = element("h2", { tabindex: -1 });
    this.text = element("p");
    this.count = element("span", { class: "count" });
    this.back = button("Back", () => this.move(-1));
    this.next = button("Next", () => this.move(1), "primary");
    this.box = element("div", { class: "tour", role: "dialog", "aria-label": "Guided tour", hidden: true }, this.title, this.text,
      element("div", { class: "tour-buttons" }, this.count, button("End the tour", () => this.end()), this.back, this.next));
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.end();
    });
  }

  start() {
    this.at = -1;
    this.box.hidden = false;
    document.body.classList.add("touring");
    this.move(1);
  }

  /** @param {number} by */
  move(by) {
    this.at += by;
    if (this.at >= STOPS.length) return this.end();
    const { address, title, text } = STOPS[this.at];
    this.go(address);
    setText(this.title, title);
    setText(this.text, text);
    setText(this.count, `${this.at + 1} of ${STOPS.length}`);
    this.back.disabled = this.at === 0;
    setText(this.next, this.at === STOPS.length - 1 ? "Done" : "Next");
    this.title.focus({ preventScroll: true });
    requestAnimationFrame(() => requestAnimationFrame(() => this.point()));
    return undefined;
  }

  /** Frame what the stop is about, once the view is drawn. */
  point() {
    document.querySelector(".pointed")?.classList.remove("pointed");
    if (this.at < 0) return;
    const target = document.querySelector(`.panel:not([hidden]) ${STOPS[this.at].target}`);
    target?.classList.add("pointed");
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    target?.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  }

  end() {
    this.at = -1;
    this.box.hidden = true;
    document.body.classList.remove("touring");
    document.querySelector(".pointed")?.classList.remove("pointed");
    this.opener.focus();
  }
}
