"""You train with Lightning: guard a training, and log every layer beside the loss.

A small encoder learns to find the largest token. Its maps are kept at spectral norm 1.5 or less
after each step; the monitor's values go to the trainer's loggers. Needs torch and lightning.
"""

import lightning
import torch
from lightning.pytorch.loggers.logger import DummyLogger

from taut import control


class Finder(lightning.LightningModule):
    """An encoder whose first output should be the token with the largest first number."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        tokens = batch[0]
        wanted = tokens[torch.arange(len(tokens)), tokens[:, :, 0].argmax(1)]
        return (self.encoder(tokens)[:, 0] - wanted).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    """Train, and print what was logged and what holds."""
    lightning.seed_everything(0, verbose=False)
    module = Finder()
    data = torch.utils.data.TensorDataset(torch.randn(512, 8, 16))
    constraint = control.Projection(module.encoder, limit=1.5)
    monitor = control.LightningMonitor("encoder", every=10)
    trainer = lightning.Trainer(
        max_epochs=2, log_every_n_steps=10, accelerator="cpu", logger=DummyLogger(),
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[control.LightningConstraints(constraint), monitor],
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=32))
    for found in monitor.monitor.history:
        print(f"step {found.step}: mean constant {found.values['taut/local_constant']:.3f}")
    print("Every map holds:", all(row.holds for row in constraint.verify()))


if __name__ == "__main__":
    main()
