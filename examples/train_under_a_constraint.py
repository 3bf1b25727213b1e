"""You train a transformer: keep its attention from becoming too sensitive, with a guarantee.

Trains a small encoder twice from the same seed, the second time with every linear map of attention
and feed-forward network kept at spectral norm 1 or less after each step. Needs the extra torch.
"""

import torch

from taut import audit, control


def train(constrained: bool) -> tuple[torch.nn.Module, float]:
    """Learn to find the token whose first number is largest; return the encoder and its loss."""
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
    if constrained:
        constraint = control.Projection(encoder, limit=1.0).start(optimizer)
    for _ in range(100):
        tokens = torch.randn(32, 8, 16)
        wanted = tokens[torch.arange(32), tokens[:, :, 0].argmax(1)]
        loss = (encoder(tokens)[:, 0] - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if constrained:
        print("Every map holds:", all(row.holds for row in constraint.verify()))
        constraint.bake()  # leaves a plain model, without hooks
    return encoder.eval(), loss.item()


def main() -> None:
    """Print the loss and the largest local constant, with and without the constraint."""
    for constrained in (False, True):
        encoder, loss = train(constrained)
        record = audit.run(encoder, [torch.randn(32, 8, 16)])
        largest = max(head["largest"] for head in record.heads)
        print(f"{constrained = }: loss {loss:.3f}, largest local constant {largest:.3f}")


if __name__ == "__main__":
    main()
