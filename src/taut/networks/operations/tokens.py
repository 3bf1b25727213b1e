"""Sums, means and choices of tokens: residuals, pooling, concatenation, other orders."""

from __future__ import annotations

import math

import numpy as np
import torch

from taut._base.rounding import Numbers, down, enlarged, hypotenuse, over, plus, root, times
from taut.networks.operations.places import Places
from taut.networks.operations.setting import Setting
from taut.networks.region import Region, longest
from taut.networks.rounding_error import EXACT
from taut.networks.weight_norms import host


class TokenOperations(Setting):
    """What combines regions, or tokens of one."""

    def add(self, x: Region, y: Region) -> Region:
        """The sum of two regions, as in a residual connection."""
        centre = None if x.centre is None or y.centre is None else x.centre + y.centre
        size = plus(x.length, y.length)
        rounding = self.rounding(x, size, 1)
        return x.but(
            lip=plus(x.lip, y.lip),
            err=plus(x.err, y.err, rounding.executed),
            drift=rounding.after(plus(x.drift, y.drift), size),
        ).placed(centre, plus(x.radius, y.radius), size)

    def product(self, x: Region, y: Region) -> Region:
        """Two regions multiplied entry by entry, such as a gate and what it lets through.

        In both norms |xy − x′y′| ≤ max|y|·|x − x′| + max|x′|·|y − y′|, with the largest entries of
        the regions. Rounding: one product for each entry.
        """
        self.tokens_only(x)
        self.fits(y, x.width, "a product")
        centre = None if x.centre is None or y.centre is None else x.centre * y.centre
        one, other = _largest_entry(x), _largest_entry(y)
        size = np.minimum(times(one, y.length), times(other, x.length))
        rounding = self.rounding(x, size, 1)
        return x.but(
            lip=plus(times(other, x.lip), times(one, y.lip)),
            err=plus(times(other, x.err), times(one, y.err), rounding.executed),
            drift=rounding.after(plus(times(other, x.drift), times(one, y.drift)), size),
        ).placed(centre, plus(times(other, x.radius), times(one, y.radius)), size)

    def first(self, x: Region, index: int = 0) -> Region:
        """One token alone, such as the one that stands for the class."""
        self.tokens_only(x)
        return x.but(centre=None if x.centre is None else x.centre[:, [index]], tokens=1)

    def after(self, x: Region, index: int) -> Region:
        """The tokens from an index on, such as those behind the token of the class."""
        self.tokens_only(x)
        centre = None if x.centre is None else x.centre[:, index:]
        return x.but(centre=centre, tokens=x.tokens - index)

    def prepend(self, x: Region, fixed: torch.Tensor) -> Region:
        """Fixed tokens, (tokens, width), such as that of the class, before the others.

        Rounding: the fixed tokens may be sums of two terms.
        """
        tokens = self.tensor(fixed)
        self.fits(x, tokens.shape[-1], "what is prepended")
        centre = None
        if x.centre is not None:
            centre = torch.cat((tokens.expand(len(x.centre), -1, -1), x.centre), dim=1)
        far = np.maximum(x.length, enlarged(float(longest(tokens[None])[0]), 2))
        drift = plus(x.drift, self.rounding(x, far, 1).centre)
        many = x.tokens + len(tokens)
        return x.but(tokens=many, drift=drift).placed(centre, x.radius, far)

    def mean(self, x: Region, name: str | None = None) -> Region:
        """The mean of all tokens: 1/√tokens in l2, 1 in the largest token.

        Rounding: a sum of as many terms as there are tokens, and a division.
        """
        self.tokens_only(x)
        constant = over(1.0, down(math.sqrt(x.tokens))) if self.norm == "l2" else 1.0
        self.leaf(name, "mean", constant, "mean of the tokens")
        centre = None if x.centre is None else x.centre.mean(dim=1, keepdim=True)
        y = x.moved(centre, constant, x.length, self.rounding(x, x.length, x.tokens + 1), x.width)
        return y.but(tokens=1)

    def beside(self, x: Region, y: Region) -> Region:
        """Two regions of equally many tokens, concatenated along their width."""
        centre = None
        if x.centre is not None and y.centre is not None:
            centre = torch.cat((x.centre, y.centre), dim=-1)
        return x.but(
            width=x.width + y.width,
            lip=hypotenuse(x.lip, y.lip),
            err=hypotenuse(x.err, y.err),
            drift=hypotenuse(x.drift, y.drift),
        ).placed(centre, hypotenuse(x.radius, y.radius), hypotenuse(x.length, y.length))

    def rearrange(self, x: Region, places: torch.Tensor, name: str | None = None) -> Region:
        """The entries of an input in other places, such as the windows of an image.

        ``places`` is (tokens, width) and counts the entries of x, tokens one after another or the
        pixels of an image; −1 is a zero. An entry that stands in m places counts √m in l2. A token
        that reads k others, no entry more than r times, is at most √(kr) times as long as they.
        Nothing is rounded.
        """
        read = Places(places, 1 if x.image else x.tokens, x.width)
        longer = root(read.widest * read.within)
        constant = root(read.most) if self.norm == "l2" else longer
        if constant > 1:  # otherwise there is nothing to tell
            self.leaf(name, "rearrange", constant, "root of how often an entry is read")
        centre = None
        if x.centre is not None:
            centre = read.applied(x.centre.flatten(1))
        tokens, width = places.shape
        size = times(longer, x.length)
        return x.but(tokens=tokens, image=()).moved(centre, constant, size, EXACT, width)


def _largest_entry(x: Region) -> Numbers:
    """No entry of a token is larger than this, nor is any of the centre."""
    if x.centre is None:
        return x.length
    found = host(x.centre.abs().flatten(1).amax(dim=1))
    return np.minimum(x.length, plus(found, x.away))
