// Elements of the page. Text goes in as text nodes, never as markup: whatever somebody types is data.

/** @typedef {string | number | Node | null | undefined} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/** @param {Element} node @param {Attributes} attributes @param {Child[]} children */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/**
 * An HTML element; a function among the attributes listens to the event of that name.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Attributes} [attributes] @param {...Child} children @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  filled(node, attributes, children);
  return node;
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Attributes} [attributes] @param {...Child} children @returns {SVGElementTagNameMap[T]}
 */
export function drawn(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  filled(node, attributes, children);
  return node;
}

/** Set text only where it differs, which costs less than a layout. @param {Element} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute only where it differs. @param {Element} node @param {string} name @param {string} value */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Make a bar as long as a share of its track. @param {HTMLElement} bar @param {number} share 0 to 1 */
export function setBar(bar, share) {
  const width = `${(100 * share).toFixed(2)}%`;
  if (bar.style.width !== width) bar.style.width = width;
}

let counter = 0;

/** A new id. @param {string} stem */
export function freshId(stem) {
  counter += 1;
  return `${stem}-${counter}`;
}
