"""You have a trained transformer: see which heads are sharp, and what stands out.

This audits a small language model that ships with taut. Put a model and texts of your own in their
place. `taut audit MODEL --data FILE` does the same on the command line, and writes a report.
Needs the extras hf and torch.
"""

from transformers import AutoModel, AutoTokenizer

from taut import audit, models


def main() -> None:
    """Print the most sensitive heads and the findings."""
    name = models.embedded_models()["embedded-plain"]
    texts = models.embedded_data(limit=4).items
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModel.from_pretrained(name).float().eval()
    options = {"truncation": True, "max_length": 128, "return_tensors": "pt"}
    batches = [dict(tokenizer(text, **options)) for text in texts]
    record = audit.run(model, batches)

    print(f"{len(record.heads)} heads on {record.samples} texts. No constant is above 0.5.")
    for head in record.ranked[:3]:
        print(
            f"{head['layer']}, head {head['head']}: mean {head['mean']:.3f}, "
            f"largest {head['largest']:.3f}, entropy {head['entropy']:.2f} nats"
        )
    for finding in audit.findings(record):
        print(finding)


if __name__ == "__main__":
    main()
