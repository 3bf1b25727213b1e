// Tokens as people can read them.
import { modelTokenizer } from "../../model/embedded.js";

/** Spaces and line ends become visible; what cannot be shown becomes a box. @param {number} token */
export function word(token) {
  const text = modelTokenizer().text(token);
  // eslint-disable-next-line no-control-regex
  return text.replace(/\n/g, "↵").replace(/ /g, "␣").replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "▯");
}
