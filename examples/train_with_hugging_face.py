"""You train with the Trainer of Hugging Face: guard it, and log every layer beside the loss.

Trains a small GPT-2 from scratch on texts that come with taut. QKClip scales down the maps of heads
whose scores exceed a limit. The monitor's values go wherever the Trainer reports to; here they are
read from its own log. Needs the extras hf and torch.
"""

import tempfile

import transformers

from taut import control, models


def main() -> None:
    """Train, and print what the log says about attention."""
    name = models.embedded_models()["embedded-plain"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    texts = models.embedded_data(limit=16).items
    read = tokenizer(texts, truncation=True, max_length=32, padding="max_length")["input_ids"]
    data = [{"input_ids": ids, "labels": ids} for ids in read]
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=32, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=20, per_device_train_batch_size=8, learning_rate=1e-2,
            logging_steps=10, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        trainer = transformers.Trainer(model, arguments, train_dataset=data)
        constraint = control.QKClip(model, limit=0.5)
        trainer.add_callback(control.HuggingFaceConstraints(trainer, constraint))
        trainer.add_callback(control.HuggingFaceMonitor(trainer, every=5))
        trainer.train()

    logged = [entry for entry in trainer.state.log_history if "taut/local_constant" in entry]
    for entry in logged:
        print(
            f"step {entry['step']}: mean constant {entry['taut/local_constant']:.3f}, "
            f"largest score {entry['taut/largest_score']:.2f}"
        )
    values = [key for key in logged[-1] if key.startswith("taut/")]
    print(f"Values of attention at a step: {len(values)}")


if __name__ == "__main__":
    main()
