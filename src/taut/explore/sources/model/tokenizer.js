// Byte-pair encoding as in GPT-2: text to tokens and back.

const PIECES = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const END_OF_TEXT = "<|endoftext|>";

/** The printable character that stands for each byte. */
function byteCharacters() {
  const characters = [];
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    characters.push(String.fromCharCode(printable ? byte : next++));
  }
  return characters;
}

export class Tokenizer {
  /** @param {{vocab: Record<string, number>, merges: string[][]}} file */
  constructor({ vocab, merges }) {
    this.ids = new Map(Object.entries(vocab));
    this.ranks = new Map(merges.map((pair, rank) => [pair.join(" "), rank]));
    this.characters = byteCharacters();
    this.bytes = new Map(this.characters.map((character, byte) => [character, byte]));
    /** @type {string[]} */
    this.pieces = [];
    for (const [piece, id] of this.ids) this.pieces[id] = piece;
  }

  /** @param {string} text */
  encode(text) {
    /** @type {number[]} */
    const found = [];
    text.split(END_OF_TEXT).forEach((part, i) => {
      if (i > 0) found.push(this.id(END_OF_TEXT));
      for (const [piece] of part.matchAll(PIECES)) found.push(...this.encodePiece(piece));
    });
    return found;
  }

  /** @param {string} piece */
  encodePiece(piece) {
    let parts = [...new TextEncoder().encode(piece)].map((byte) => this.characters[byte]);
    for (;;) {
      let best = Infinity;
      let at = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return parts.map((part) => this.id(part));
      parts = [...parts.slice(0, at), parts[at] + parts[at + 1], ...parts.slice(at + 2)];
    }
  }

  /** @param {string} piece */
  id(piece) {
    const id = this.ids.get(piece);
    if (id === undefined) throw new Error(`no token ${JSON.stringify(piece)}`);
    return id;
  }

  /** The text of one token; a part of a letter becomes �. @param {number} id */
  text(id) {
    if (this.pieces[id] === END_OF_TEXT) return END_OF_TEXT;
    const bytes = [...this.pieces[id]].map((character) => this.bytes.get(character) ?? 0);
    return new TextDecoder().decode(Uint8Array.from(bytes));
  }
}
