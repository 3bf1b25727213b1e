// Three tabs, as screen readers know them: arrow keys move between them.
import { element } from "./elements.js";

/** @typedef {import("./state.js").ViewName} ViewName */

/** @type {[ViewName, string][]} */
const NAMES = [["softmax", "Softmax"], ["attention", "Attention"], ["games", "Games"]];

export class Tabs {
  /** @param {(view: ViewName) => void} open @param {Record<ViewName, HTMLElement>} panels */
  constructor(open, panels) {
    this.panels = panels;
    this.tabs = NAMES.map(([name, text], i) => {
      const tab = element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, click: () => open(name) }, text);
      tab.addEventListener("keydown", (event) => {
        const by = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1 })[event.key];
        if (!by) return;
        const [other] = NAMES[(i + by + NAMES.length) % NAMES.length];
        open(other);
        document.getElementById(`tab-${other}`)?.focus();
      });
      return tab;
    });
    this.node = element("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...this.tabs);
  }

  /** @param {ViewName} view */
  show(view) {
    NAMES.forEach(([name], i) => {
      const chosen = name === view;
      this.tabs[i].setAttribute("aria-selected", String(chosen));
      this.tabs[i].tabIndex = chosen ? 0 : -1;
      this.panels[name].hidden = !chosen;
    });
  }
}
