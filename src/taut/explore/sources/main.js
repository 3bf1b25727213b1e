// The page: three views over one state. What is computed can also be called from the console, as ``taut``.
import { certify, interaction, roundsForGap } from "./games/certificate.js";
import { solveGame } from "./games/equilibrium.js";
import { iterate, rateAtEquilibrium } from "./games/iteration.js";
import { modelTokenizer, modelWeights } from "./model/embedded.js";
import { smallestFlip } from "./model/flip.js";
import { runModel } from "./model/transformer.js";
import { fromAddress, toAddress } from "./page/address.js";
import { onThemeChange } from "./page/colours.js";
import { button } from "./page/controls.js";
import { copyButton } from "./page/copying.js";
import { element } from "./page/elements.js";
import { Store, firstState } from "./page/state.js";
import { Tabs } from "./page/tabs.js";
import { Tour } from "./page/tour.js";
import { localConstant, rateAlong, worstDirection } from "./softmax/constants.js";
import { gaussianDirections, ratesAlong } from "./softmax/random_directions.js";
import { changeAfterStep, entropy, jacobian, softmax } from "./softmax/softmax.js";
import { stepBounds, trueStep } from "./softmax/steps.js";
import { AttentionView } from "./views/attention/view.js";
import { GamesView } from "./views/games/view.js";
import { SoftmaxView } from "./views/softmax/view.js";

/** @typedef {import("./page/state.js").ViewName} ViewName */
/** @typedef {{node: HTMLElement, show: () => void, redraw: () => void, measure: () => boolean}} View */

const store = new Store(render);
/** @type {Partial<Record<ViewName, View>>} */
const views = {};
const makers = { softmax: SoftmaxView, attention: AttentionView, games: GamesView };
/** @param {ViewName} name */
const panel = (name) => element("div", { class: "panel", role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, hidden: true });
const panels = { softmax: panel("softmax"), attention: panel("attention"), games: panel("games") };
const tabs = new Tabs((view) => store.open(view), panels);
const tour = new Tour((address) => store.replace(fromAddress(address, firstState())));
const undo = button("Undo", () => store.undo(), "small", "Ctrl+Z");
const redo = button("Redo", () => store.redo(), "small", "Ctrl+Shift+Z");

/** The open view, made when it is first needed: the models take a moment to read. */
function openView() {
  const name = store.state.view;
  const found = views[name] ?? new makers[name](store);
  if (views[name] === undefined) panels[name].append(found.node);
  views[name] = found;
  return found;
}

function render() {
  const view = openView();
  tabs.show(store.state.view);
  undo.disabled = store.past.length === 0;
  redo.disabled = store.future.length === 0;
  view.show();
}

/** Draw again where a figure has another width than it was drawn for. */
function fit() {
  const view = openView();
  const side = /** @type {HTMLElement} */ (view.node.firstElementChild);
  side.style.setProperty("--side-top", `${Math.min(12, window.innerHeight - side.offsetHeight - 12)}px`);
  if (view.measure()) view.show();
}

document.getElementById("top")?.append(tabs.node,
  element("div", { class: "tools" }, undo, redo,
    copyButton("Copy link", () => `${location.href.split("#")[0]}${toAddress(store.state)}`, "small"), tour.opener));
document.getElementById("main")?.append(...Object.values(panels));
document.body.append(tour.box);

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLTextAreaElement || (event.target instanceof HTMLInputElement && event.target.type === "text");
  if (typing || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
  event.preventDefault();
  if (event.shiftKey) store.redo();
  else store.undo();
});
window.addEventListener("hashchange", () => {
  if (location.hash !== toAddress(store.state)) store.replace(fromAddress(location.hash, store.state));
});
new ResizeObserver(fit).observe(document.body);
window.addEventListener("resize", fit);
onThemeChange(() => openView().redraw());
render();
fit();

Object.assign(window, {
  taut: {
    softmax, jacobian, entropy, localConstant, worstDirection, rateAlong, stepBounds, trueStep, changeAfterStep, gaussianDirections, ratesAlong,
    solveGame, certify, interaction, roundsForGap, iterate, rateAtEquilibrium, smallestFlip,
    /** @param {string} text */
    encode: (text) => modelTokenizer().encode(text),
    /** @param {import("./model/embedded.js").ModelName} name @param {number[]} tokens @param {import("./model/transformer.js").Interference} [interference] @param {{run: import("./model/transformer.js").Run, first: number}} [earlier] */
    runModel: (name, tokens, interference, earlier) => runModel(modelWeights(name), tokens, interference, earlier),
    weights: modelWeights,
    store,
  },
});
