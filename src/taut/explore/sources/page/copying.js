// Copy numbers, links and Python lines.
import { announce } from "./announce.js";
import { element, setText } from "./elements.js";

/** @param {string} text @returns {Promise<boolean>} */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages opened from a file have no clipboard in some browsers: an old way works there.
    const area = element("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A button that copies what ``text`` gives. @param {string} label @param {() => string} text @param {string} [kind] */
export function copyButton(label, text, kind = "copy") {
  const node = element("button", { type: "button", class: kind }, label);
  node.addEventListener("click", async () => {
    const done = await toClipboard(text());
    const said = done ? "Copied" : "Select the text and copy it by hand";
    announce(said);
    setText(node, said);
    setTimeout(() => setText(node, label), 1500);
  });
  return node;
}

/** Python lines that give the numbers on the page. @param {string} about */
export function pythonPanel(about) {
  const code = element("code", { class: "python", tabindex: 0, role: "region", "aria-label": "Python lines" });
  const node = element("section", { class: "card wide" },
    element("h3", {}, "The same numbers in Python"),
    element("p", { class: "about" }, about),
    element("pre", {}, code),
    copyButton("Copy these lines", () => code.textContent ?? ""));
  /** @param {string} lines */
  const show = (lines) => setText(code, lines);
  return { node, show };
}
