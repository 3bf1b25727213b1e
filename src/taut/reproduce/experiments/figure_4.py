"""Figure 4 of Nair 2025: softmax policies in reinforcement learning, by scale λ."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from taut._base.checks import exponent_name
from taut._base.optional import needing
from taut._base.progress import shown
from taut._base.terminal_text import say
from taut.reproduce.kept_arrays import Arrays, kept
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable, limit_curve, never_above
from taut.reproduce.row_ratios import Measured, below, measure

ENVIRONMENTS = {"CartPole-v1": 20_000, "LunarLander-v3": 100_000}  # steps of training
TRIALS = 4  # directions for each state
REPORTED = 1.9996  # for CartPole, p = 8, λ = 4


class Policy(NamedTuple):
    """A policy in an environment, and the ratios of its action logits for each scale λ."""

    environment: str
    steps: int  # of training
    reward: float
    ratios: dict[float, Measured]

    def __str__(self) -> str:
        trained = f"trained for {self.steps:,} steps" if self.steps else "untrained"
        return f"{self.environment}, {trained}"

    def rows(self, norms: tuple[float, ...]) -> list[list[str]]:
        """Lines of the table, by scale and norm."""
        return [
            [str(self), f"{scale:g}", exponent_name(p), f"{one.random[0, j]:.4f}",
             f"{one.mean_random[0, j]:.4f}", f"{one.worst[0, j]:.4f}", one.mean_constant(j),
             f"{scale / 2:g}"]
            for scale, one in self.ratios.items()
            for j, p in enumerate(norms)
        ]  # fmt: skip

    def shares(self) -> list[float]:
        """All ratios as shares of λ/2."""
        return [
            float(2 / scale * ratio)
            for scale, one in self.ratios.items()
            for ratio in (*one.random.ravel(), *one.worst.ravel())
        ]

    def spreads(self) -> list[float]:
        """By norm, the factor between shares of λ/2: largest ratios, or means where trained."""
        of_half = np.array(
            [2 / scale * (one.mean_random if self.steps else one.random)[0]
             for scale, one in self.ratios.items()]
        )  # fmt: skip
        found: list[float] = (of_half.max(axis=0) / of_half.min(axis=0)).tolist()
        return found


def run(options: Options) -> Result:
    """Action logits of PPO policies, random and trained."""
    states, epsilons = options.size(25_000, 1_000), sorted(options.epsilons)
    policies = [
        _policy(name, training, states, options)
        for name, steps in ENVIRONMENTS.items()
        for training in ([0] if options.quick else [0, steps])
    ]
    rows = [row for policy in policies for row in policy.rows(options.norms)]
    plots = [plot for policy in policies for plot in _plots(policy, options, epsilons)]
    claims = _claims(policies, options.norms)
    header = ["policy", "λ", "p", "random directions, largest", "random directions, mean",
              "worst directions, largest", "local constant, mean", "λ/2"]  # fmt: skip
    left_out = " Trained policies are left out of a quick run." if options.quick else ""
    return Result(
        "figure-4",
        "Figure 4 of Nair 2025: softmax policies in CartPole and LunarLander",
        {"states": states, "directions of a state": TRIALS, "scales": list(options.scales),
         "norms": list(options.norms), "epsilons": epsilons, "seed": options.seed},
        claims,
        [ResultTable(f"Steps of {epsilons[0]:g}", header, rows)],
        plots,
        ["PPO agents of stable-baselines3; states are those that the agent visits. Largest and "
         f"mean are over all states and {TRIALS} random directions of each. The paper says that it "
         "averages over states and directions; its 1.9996 is near the largest, not the average: "
         "for two actions a random direction often misses, and seldom all of it. In proportion to "
         "λ/2 are the largest ratios. Means are not where policies are sharp: the larger λ, the "
         f"more states have one action that is nearly certain.{left_out}"],
    )  # fmt: skip


def _claims(policies: list[Policy], norms: tuple[float, ...]) -> list[Claim]:
    shares = [share for policy in policies for share in policy.shares()]
    spreads = {
        trained: [v for policy in policies if bool(policy.steps) is trained
                  for v in policy.spreads()]
        for trained in (False, True)
    }  # fmt: skip
    claims = [
        Claim("never above λ/2 (largest share of it, random and worst directions)", "at most 1",
              below(float(np.max(shares)), 1.0), never_above(shares, 1 + 1e-12)),
        Claim("untrained policies: the largest ratio grows with λ (shares of λ/2 differ by a "
              "factor of)", "in proportion", f"up to {max(spreads[False]):.3f}",
              max(spreads[False]) < 1.1),
    ]  # fmt: skip
    if spreads[True]:
        claims.append(
            Claim("trained policies: so does the mean ratio", "not said",
                  f"up to {max(spreads[True]):.3f}", None)
        )  # fmt: skip
    cart = _cart(policies[0].ratios, norms)  # CartPole, untrained
    if cart is not None:
        claims.append(Claim("CartPole, untrained, λ = 4, p = 8", f"{REPORTED}, called an average",
                            f"largest {cart[0]:.4f}, average {cart[1]:.4f}",
                            abs(cart[0] - REPORTED) < 1e-3))  # fmt: skip
    return claims


def _policy(name: str, steps: int, states: int, options: Options) -> Policy:
    """The ratios of a policy's action logits in the states that it visits."""
    logits, reward = _visited(name, steps, states, options)
    ratios = {
        scale: measure(logits, options.norms, sorted(options.epsilons), scale=scale,
                       trials=TRIALS, seed=options.seed)
        for scale in options.scales
    }  # fmt: skip
    return Policy(name, steps, reward, ratios)


def _cart(found: dict[float, Measured], norms: tuple[float, ...]) -> tuple[float, float] | None:
    """Largest and mean ratio for λ = 4 and p = 8, which the paper has a number of."""
    if 4.0 not in found or 8.0 not in norms:
        return None
    one, j = found[4.0], norms.index(8.0)
    return float(one.random[:, j].max()), float(one.mean_random[0, j])


def _plots(policy: Policy, options: Options, epsilons: list[float]) -> list[Plot]:
    """Largest ratios as shares of λ/2 over step sizes, for p = 2 and 8 or the first norm."""
    wanted = [p for p in (2.0, 8.0) if p in options.norms] or list(options.norms[:1])
    plots = []
    for p in wanted:
        j = options.norms.index(p)
        curves = [
            Curve(f"λ = {scale:g}", epsilons, (2 / scale * one.random[:, j]).tolist())
            for scale, one in policy.ratios.items()
        ]
        curves.append(limit_curve("λ/2", epsilons, 1.0))
        what = "largest ratio as a share of λ/2"
        who = f"{policy}, mean reward {policy.reward:.0f}, p = {exponent_name(p)}"
        plots.append(Plot(who, "ε", what, curves, log_x=True))
    return plots


def _visited(name: str, steps: int, count: int, options: Options) -> tuple[Any, float]:
    """Action logits in the states that a policy visits, and its mean reward; kept once made."""
    key = {"environment": name, "steps": steps, "states": count, "seed": options.seed}
    found = kept(
        options.folder / "policies", key, lambda: _played(name, steps, count, options.seed)
    )
    return found["logits"], float(found["reward"])


def _played(name: str, steps: int, count: int, seed: int) -> Arrays:
    with needing("figure-4 needs gymnasium, stable-baselines3 and PyTorch", "rl", "torch"):
        import gymnasium
        import stable_baselines3
        import torch
    agent = stable_baselines3.PPO("MlpPolicy", name, seed=seed, device="cpu")
    if steps:
        say(f"training in {name}, {steps:,} steps", file=sys.stderr)
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
