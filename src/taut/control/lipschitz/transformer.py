"""LipschitzTransformer: a transformer with a bound for all inputs that training keeps."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from taut._base.bound import Bound
from taut._base.checks import whole_number
from taut._base.domain import Ball, Everywhere
from taut._base.norm import FROBENIUS, RMS_TOKEN
from taut._base.rounding import Numbers, enlarged, times
from taut.control.lipschitz.activation import ACTIVATIONS, MaxMin
from taut.control.lipschitz.all_lengths import for_all_inputs
from taut.control.lipschitz.attention import BoundedAttention
from taut.control.lipschitz.block import LipschitzBlock
from taut.control.lipschitz.budget import AttentionKind, divide
from taut.control.lipschitz.embedding import PatchEmbedding, TokenBall, WordEmbedding
from taut.control.lipschitz.features import pair_constants
from taut.control.lipschitz.norm import NormKind, longest_after
from taut.networks import known_activation


class LipschitzTransformer(nn.Module):
    """A transformer of text or images whose outputs move at most ``target`` times as far as inputs.

    Build it with :meth:`of_text` or :meth:`of_images`, train it with any optimiser and a
    :class:`WeightLimits` constraint that was started on it, and read :meth:`certificate`.

    Parameters
    ----------
    embedding
        Where tokens come from.
    outputs
        Number of logits.
    tokens, width, layers, heads, hidden
        Largest number of tokens, width of tokens, number of blocks, number of heads, width of the
        feed-forward networks (four times that of tokens if not given).
    target
        The bound. For text: from the largest root mean square of an embedding to that of the logits
        of a token, as in Newhouse et al. 2025. For images: from l2 of all pixels to l2 of the
        logits.
    sharpness
        Largest score of attention, apart from what it learns of positions, which is free.
    activation
        ``"gelu"``, ``"relu"``, ``"silu"`` or ``"maxmin"``.
    attention
        ``"dot_product"``, ``"cosine"`` or ``"l2"``, by distances.
    norm
        What tokens go through before attention and feed-forward networks: ``"centre"`` takes off
        the mean of their entries, ``"rms"`` and ``"layer"`` are RMSNorm and LayerNorm with ε = 1,
        with which their constant is 1, and without gains. None for nothing.
    causal
        Whether tokens see only those before them.
    pool
        ``None``: logits for every token. ``"mean"``: for the mean of all tokens. ``"all"``: for all
        tokens side by side, which is the best for images; the bound is then followed in l2.
    head
        Units of a hidden layer before the output, in sorted pairs; None for none. After
        ``pool="all"`` it sees all of an image at once.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = LipschitzTransformer.of_text(10, tokens=8, width=16, layers=1, heads=2, target=2.0)
    >>> model(torch.randint(0, 10, (3, 8))).shape
    torch.Size([3, 8, 10])
    >>> model.certificate().upper <= 2.0
    True
    """

    image: tuple[int, int, int] | None = None  # (channels, height, width) of its inputs

    def __init__(
        self,
        embedding: WordEmbedding | PatchEmbedding,
        outputs: int,
        *,
        tokens: int,
        width: int,
        layers: int,
        heads: int,
        target: float,
        hidden: int | None = None,
        sharpness: float = 1.0,
        activation: str = "gelu",
        attention: AttentionKind = "dot_product",
        norm: NormKind | None = None,
        causal: bool = False,
        pool: Literal["mean", "all"] | None = None,
        head: int | None = None,
    ) -> None:
        super().__init__()
        sizes = {"tokens": tokens, "width": width, "layers": layers, "heads": heads}
        for name, value in sizes.items():
            whole_number(value, name=name, least=1)
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}: {activation!r}")
        if attention not in get_args(AttentionKind):
            known = ", ".join(get_args(AttentionKind))
            raise ValueError(f"attention must be one of {known}, got {attention!r}")
        if pool not in (None, "mean", "all"):
            raise ValueError(f"pool must be None, 'mean' or 'all', got {pool!r}")
        self.embedding, self.tokens, self.width, self.pool = embedding, tokens, width, pool
        self.ball = TokenBall(math.sqrt(width))
        self.target = target
        function = ACTIVATIONS[activation]()
        self.budget = divide(
            target,
            heads=heads,
            sharpness=sharpness,
            slope=1.0 if isinstance(function, MaxMin) else known_activation(function).constant,
            kind=attention,
        )
        reach = self.ball.reach
        self.blocks: Any = nn.ModuleList(  # which does not know the class of its members
            LipschitzBlock(
                BoundedAttention(
                    width, heads, reach=longest_after(norm, reach, width), sharpness=sharpness,
                    tokens=tokens, causal=causal, kind=attention, places=pool == "all",
                ),
                4 * width if hidden is None else whole_number(hidden, name="hidden", least=1),
                activation,
                self.budget,
                reach=reach,
                norm=norm,
            )
            for _ in range(layers)
        )  # fmt: skip
        read = width * tokens if pool == "all" else width
        self.head, self.head_bias, self.head_activation = None, None, MaxMin()
        if head is not None:
            head = whole_number(head, name="head", least=2)
            self.head = nn.Parameter(nn.init.orthogonal_(torch.empty(head, read)))
            self.head_bias = nn.Parameter(torch.zeros(head))
            read = head
        self.output = nn.Parameter(nn.init.orthogonal_(torch.empty(outputs, read)))
        # The limit of ``output`` is 1 in l2; a bound of text counts root mean squares.
        self.factor = self.budget.output
        if self.text:
            self.factor *= math.sqrt(outputs / width)
            # Attention is 1-Lipschitz in l2 then, where all tokens together may move farther.
            self.factor /= math.sqrt(tokens) if pool == "all" else 1.0

    @classmethod
    def of_text(
        cls, words: int, *, width: int, outputs: int | None = None, **options: Any
    ) -> LipschitzTransformer:
        """A model of text that predicts the next word, or with ``outputs`` a class of the whole."""
        usual = {"causal": True} if outputs is None else {"pool": "mean"}
        options = {**usual, **options}
        return cls(WordEmbedding(words, width), outputs or words, width=width, **options)

    @classmethod
    def of_images(
        cls, outputs: int, *, image: tuple[int, int, int], patch: int, width: int, **options: Any
    ) -> LipschitzTransformer:
        """A classifier of images (channels, height, width), cut into square patches."""
        channels, height, across = image
        if height != across or height % patch:
            raise ValueError(f"images must be square, a multiple of the patch {patch}: got {image}")
        embedding = PatchEmbedding(channels, height, patch, width)
        options = {"pool": "all", "tokens": embedding.tokens, **options}
        model = cls(embedding, outputs, width=width, **options)
        model.image = image
        return model

    @property
    def text(self) -> bool:
        """Whether it reads words."""
        return isinstance(self.embedding, WordEmbedding)

    def forward(
        self, inputs: Tensor | None = None, *, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Logits of words (batch, tokens), of images, or of embeddings.

        Embeddings are first brought into the ball of root mean square 1, which leaves those of
        words as they are. So the bound holds for all embeddings and images whatsoever.
        """
        if inputs_embeds is None:
            if inputs is None:
                raise TypeError("give words, images or inputs_embeds")
            inputs_embeds = self.embedding(inputs)
        if inputs_embeds.shape[1] > self.tokens:
            raise ValueError(f"the model takes {self.tokens} tokens, got {inputs_embeds.shape[1]}")
        logits = self.factor * nn.functional.linear(self.features(inputs_embeds), self.output)
        return logits if self.pool is None else logits[:, 0]

    def features(self, embedded: Tensor) -> Tensor:
        """What the output map reads: rows of all tokens, or one row, (batch, rows, width)."""
        x: Tensor = self.ball(embedded)
        for block in self.blocks:
            x = block(x)
        if self.pool == "mean":
            x = x.mean(dim=1, keepdim=True)
        elif self.pool == "all":
            x = x.flatten(1)[:, None]
        if self.head is None:
            return x
        found: Tensor = self.head_activation(nn.functional.linear(x, self.head, self.head_bias))
        return found

    def certificate(self, norm: Literal["rms", "token", "l2"] | None = None) -> Bound:
        """How far logits can move for each unit that the input moves, for all inputs.

        It is what :func:`taut.networks.certify` finds for the weights as they are now. For text the
        inputs are all embeddings, for images all images.

        Parameters
        ----------
        norm
            For text ``"rms"``, in which the target counts, ``"token"`` (the largest l2 norm of a
            token) or ``"l2"`` over all tokens. Images are always bounded in l2.

        Notes
        -----
        Texts of fewer than ``tokens`` tokens are covered. In l2 :func:`taut.networks.certify` finds
        less for one number of tokens that is neither the smallest nor the largest; a model that is
        neither causal nor takes a mean is followed at every number, which takes as many times as
        long.
        """
        if self.text:
            norm = norm or "rms"
            found = for_all_inputs(self, self, "l2" if norm == "l2" else "token")
            if norm != "rms":
                return found
            ratio = enlarged(math.sqrt(self.width / self.output.shape[0]), 2)
            return found._replace(upper=times(found.upper, ratio), norm=RMS_TOKEN)
        if norm is not None:
            raise ValueError("images are bounded from l2 of pixels to l2 of logits: leave out norm")
        # The image is one token, and so are its logits: both norms are l2 there.
        both = [for_all_inputs(self, self, each) for each in ("l2", "token")]
        return min(both, key=lambda bound: float(bound.upper))._replace(norm=FROBENIUS)

    def margin_constants(
        self, domain: Ball | Everywhere | None = None, norm: Literal["l2", "token"] = "l2"
    ) -> Numbers:
        """How far logit a less logit b can move, (outputs, outputs); margins over it are radii.

        Theorem margin-radius: rows of the output map that lie close to each other part less than
        √2 times the certificate allows. By default for all inputs, as :meth:`certificate`.
        """
        return pair_constants(self, domain, norm)
