"""S1's Figure 4: softmax policies in reinforcement learning, over the inverse temperature."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from taut._checks import exponent_name
from taut.reproduce._kept import Arrays, kept, shown
from taut.reproduce._options import Options
from taut.reproduce._result import Claim, Curve, Plot, Result, Table, never_above
from taut.reproduce._rows import measure

ENVIRONMENTS = {"CartPole-v1": 20_000, "LunarLander-v3": 100_000}  # steps of training
SCALES = (0.5, 1.0, 2.0, 4.0)
REPORTED = 1.9996  # for CartPole, p = 8, λ = 4


def figure_4(options: Options) -> Result:
    """Action logits of PPO policies, random and trained."""
    states = options.size(25_000, 1_000)
    epsilons = sorted(options.epsilons)
    rows, plots, claims = [], [], []
    shares: list[float] = []
    cart = 0.0
    for name, steps in ENVIRONMENTS.items():
        trained = [0] if options.quick else [0, steps]
        for training in trained:
            logits, reward = _visited(name, training, states, options)
            who = f"{name}, " + (f"trained for {training:,} steps" if training else "random")
            curves = []
            for scale in SCALES:
                found = measure(logits, options.norms, epsilons, scale=scale, trials=4,
                                seed=options.seed)  # fmt: skip
                shares += (found.random / (scale / 2)).ravel().tolist()
                shares += (found.worst / (scale / 2)).ravel().tolist()
                for j, p in enumerate(options.norms):
                    most = found.random[:, j].max(), found.mean_random[0, j]
                    more = found.worst[:, j].max(), found.mean_exact[j]
                    rows.append([who, f"{scale:g}", exponent_name(p),
                                 *(f"{number:.4f}" for number in (*most, *more)),
                                 f"{scale / 2:g}"])  # fmt: skip
                    if name.startswith("CartPole") and scale == 4.0 and p == 8.0 and not training:
                        cart = float(found.random[:, j].max())
                j = options.norms.index(2.0) if 2.0 in options.norms else 0
                curves.append(Curve(f"λ = {scale:g}", epsilons, found.random[:, j].tolist()))
                limit = [scale / 2, scale / 2]
                curves.append(
                    Curve(f"{scale / 2:g}", [epsilons[0], epsilons[-1]], limit, dashed=True)
                )
            norm = exponent_name(options.norms[j])
            title = f"{who}: mean reward {reward:.0f}"
            plots.append(Plot(title, "ε", f"empirical L, p = {norm}", curves, log_x=True))
    claims.append(Claim("never above λ/2 (share of it)", "at most 1", f"{max(shares):.6f}",
                        never_above(shares, 1 + 1e-12)))  # fmt: skip
    if 8.0 in options.norms:
        claims.append(Claim("CartPole, λ = 4, p = 8, random policy", f"{REPORTED}", f"{cart:.4f}",
                            abs(cart - REPORTED) < 1e-3))  # fmt: skip
    header = ["policy", "λ", "p", "random, largest", "random, mean", "worst, largest",
              "local constant, mean", "λ/2"]  # fmt: skip
    return Result(
        "figure-4",
        "Figure 4: softmax policies in CartPole and LunarLander",
        {"states": states, "scales": list(SCALES), "norms": list(options.norms),
         "epsilons": epsilons, "seed": options.seed},
        claims,
        [Table("Policies", header, rows)],
        plots,
        ["PPO agents of stable-baselines3; states are those that the agent visits. For two actions "
         "a random direction misses little, so that the largest ratio comes close to λ/2. The "
         "paper says that it averages over states; its 1.9996 is near the largest, not the mean."],
    )  # fmt: skip


def _visited(name: str, steps: int, count: int, options: Options) -> tuple[Any, float]:
    """Action logits in the states that a policy visits, and its mean reward; kept once made."""
    key = {"environment": name, "steps": steps, "states": count, "seed": options.seed}
    found = kept(
        options.folder / "policies", key, lambda: _played(name, steps, count, options.seed)
    )
    return found["logits"], float(found["reward"])


def _played(name: str, steps: int, count: int, seed: int) -> Arrays:
    try:
        import gymnasium
        import stable_baselines3
        import torch
    except ImportError:
        raise ImportError("figure-4 needs gymnasium and PPO: pip install 'taut[rl]'") from None
    agent = stable_baselines3.PPO("MlpPolicy", name, seed=seed, device="cpu")
    if steps:
        agent.learn(steps, progress_bar=sys.stderr.isatty())
    environment = gymnasium.make(name)
    torch.manual_seed(seed)
    state, _ = environment.reset(seed=seed)
    rows: list[Any] = []
    rewards: list[float] = []
    total = 0.0
    for _ in shown(range(count), count, f"states of {name}"):
        with torch.no_grad():
            seen = torch.as_tensor(state, dtype=torch.float32)[None]
            chosen: Any = agent.policy.get_distribution(seen).distribution
        rows.append(chosen.logits[0].double().numpy())
        state, reward, ended, cut, _ = environment.step(int(chosen.sample()))
        total += float(reward)
        if ended or cut:
            rewards.append(total)
            total = 0.0
            state, _ = environment.reset()
    environment.close()
    mean = float(np.mean(rewards)) if rewards else total
    return {"logits": np.stack(rows), "reward": np.asarray(mean)}
