// What screen readers say when numbers change. Only the last of many quick changes is said.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting;

/** @param {string} text @param {number} [delay] milliseconds */
export function announce(text, delay = 0) {
  const region = document.getElementById("announcer");
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    if (region && region.textContent !== text) region.textContent = text;
  }, delay);
}
