// Python lines that give the numbers of the chosen row.
import { pythonNumber } from "../../page/format.js";
import { queryOf, tokensOf } from "./experiment.js";

/** @param {import("../../page/state.js").AttentionState} state */
export function attentionPython(state) {
  const { before, after } = tokensOf(state);
  const query = queryOf(state, before.length);
  const { layer, head, temperature } = state;
  const swapped = after.findIndex((token, place) => token !== before[place]);
  return [
    "import taut, torch",
    "from transformers import AutoTokenizer",
    "from taut.models import capture, embedded_models, load",
    "for folder in embedded_models().values():  # plain, then constrained",
    '    model, tokenizer = load(str(folder), dtype="float32"), AutoTokenizer.from_pretrained(folder)',
    `    tokens = tokenizer(${JSON.stringify(state.text || " ")}, return_tensors="pt").input_ids[:, :${before.length}]`,
    ...(swapped < 0 ? [] : [`    tokens[0, ${swapped}] = ${after[swapped]}`]),
    "    scores = []",
    "    with torch.no_grad(), capture(model, lambda seen: scores.append(seen.scores.clone())):",
    "        logits = model(tokens).logits[0, -1]",
    `    row = scores[${layer}][0, ${head}, ${query}, :${query + 1}]  # layer, head and token as chosen`,
    `    print(taut.local_lipschitz(row, 2, scale=1 / ${pythonNumber(temperature)}))  # without pushes`,
    `    print(taut.local_lipschitz(row, 1, scale=1 / ${pythonNumber(temperature)}))`,
    "    for chance, token in zip(*logits.softmax(-1).topk(5)):",
    "        print(f\"{chance:.4f} {tokenizer.decode(token)!r}\")  # what comes next, at temperature 1",
  ].join("\n");
}
