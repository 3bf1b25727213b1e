"""Arithmetic of the Triton kernel: exponentials, sums over a block of keys, the secular equation.

Rows are written in units of their runner-up. With t the largest score, s the largest one below it,
E = exp(z − s) for the keys below t, e₂ = exp(s − t) and δ = 1 − e₂, theorem local-2 says that
‖M‖₂ = e₂(1 + g)/Z where g > 0 solves

    F(g) = Σ E/(g + 1 − E) = 1/(δ − e₂g).

Every term is positive and 1 − E is found without subtraction, so nothing cancels; the relative
error of 1 + g is at most that of F. The root lies in [δ/(1 + e₂), δ/e₂). Elements of a block are
float32, in which the scores are; what is one number a row is float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(float("-inf"))  # the score of a hidden key
LOG2E = tl.constexpr(1.4426950408889634)
# ln 2 in two parts. The first has 9 bits, so that its product with a power up to 127 is exact.
LN2_HIGH, LN2_LOW = tl.constexpr(0.693359375), tl.constexpr(-2.1219444005469057e-4)
DEEPEST = tl.constexpr(-87.0)  # its exponential is still a normal number in float32


@triton.jit
def exponential(depth):
    """E = exp(depth) and 1 − E for depth ≤ 0 in float32, both to about one unit in the last place.

    The exponential of the hardware multiplies by log₂e in float32 first, which costs |depth| units.
    """
    depth = tl.maximum(depth, DEEPEST)
    power = tl.floor(depth * LOG2E + 0.5)
    r = (depth - power * LN2_HIGH) - power * LN2_LOW
    # exp(r) − 1 for |r| ≤ 0.35; the first term left out is 0.04 units in the last place of exp(r).
    p = 1 / 720 + r * (1 / 5040)
    p = 1 / 24 + r * (1 / 120 + r * p)
    change = r * (1.0 + r * (0.5 + r * (1 / 6 + r * p)))
    scale = ((power.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)  # 2^power
    gap = tl.where(power == 0.0, -change, (1.0 - scale) - scale * change)
    return scale + scale * change, gap


@triton.jit
def leading(z, columns, keys, top, leader):
    """The first key with the largest score, in a block or before it."""
    best = tl.max(z, 1)
    place = tl.min(tl.where(z == best[:, None], columns[None, :], keys), 1)
    return tl.where(best > top, place, leader)


@triton.jit
def survey(z, top, ties, second, total, squares):
    """Take a block of scores into the two largest of each row and rough sums below the largest.

    ``ties`` counts the keys at the top. ``total`` and ``squares`` are ΣE and ΣE² over the keys
    below it, good enough for a first guess: they are put into a new unit whenever s changes, and
    that costs a rounding each time.
    """
    new_top = tl.maximum(top, tl.max(z, 1))
    overtaken = top < new_top
    below = (z < new_top[:, None]) & (z > NOTHING)
    reach = tl.max(tl.where(below, z, NOTHING), 1)
    new_second = tl.maximum(tl.where(overtaken, top, second), reach)
    unit = tl.where(new_second == NOTHING, 0.0, new_second)
    weight, _ = exponential(tl.where(below, z - unit[:, None], 0.0))
    weight = tl.where(below, weight, 0.0)
    shrink, _ = exponential(tl.where(second == NOTHING, 0.0, second - unit))
    fall, _ = exponential(tl.where(overtaken & (ties > 0), top - unit, 0.0))
    joining = tl.where(overtaken, ties, 0).to(tl.float32)
    total = total * shrink + joining * fall + tl.sum(weight, 1)
    squares = squares * shrink * shrink + joining * fall * fall + tl.sum(weight * weight, 1)
    at_top = ((z == new_top[:, None]) & (z > NOTHING)).to(tl.int32)
    ties = tl.where(overtaken, 0, ties) + tl.sum(at_top, 1)
    return new_top, ties, new_second, total, squares


@triton.jit
def plus(total, lost, part):
    """A sum across blocks in float32 and what rounding took from it (Knuth)."""
    found = total + part
    change = found - total
    return found, lost + ((total - (found - change)) + (part - change))


@triton.jit
def pole_sums(z, second, g):
    """Sums of a block of scores with the runner-up known.

    How many keys are at s, and over those below ΣE, ΣE(z − s), ΣEρ and ΣEρ², ρ = g/(g + 1 − E).
    """
    below = (z < second[:, None]) & (z > NOTHING)
    depth = tl.where(below, z - second[:, None], 0.0)
    weight, gap = exponential(depth)
    weight = tl.where(below, weight, 0.0)
    rho = g[:, None] / (g[:, None] + gap)
    part = weight * rho
    at_second = ((z == second[:, None]) & (z > NOTHING)).to(tl.int32)
    return (
        tl.sum(at_second, 1), tl.sum(weight, 1), tl.sum(weight * depth, 1), tl.sum(part, 1),
        tl.sum(part * rho, 1),
    )  # fmt: skip


@triton.jit
def crossing(poles, rest, offset, runner_up, room):
    """The g > 0 with poles/g + rest/(g + offset) = 1/(room − runner_up·g), poles ≥ 1.

    It is the positive root of a quadratic whose ends have opposite signs.
    """
    a = 1.0 + runner_up * (poles + rest)
    b = offset * (1.0 + runner_up * poles) - room * (poles + rest)
    c = poles * offset * room
    root = tl.sqrt(b * b + 4.0 * a * c)
    return tl.where(b > 0.0, 2.0 * c / tl.where(b > 0.0, b + root, 1.0), (root - b) / (2.0 * a))


@triton.jit
def first_guess(total, squares, runner_up, room):
    """A lower bound of g: all keys but one runner-up at their mean E, by Jensen's inequality."""
    rest = tl.maximum(total - 1.0, 0.0)
    centre = tl.maximum(squares - 1.0, 0.0) / tl.where(rest > 0.0, rest, 1.0)
    offset = 1.0 - tl.minimum(centre, 1.0)
    return tl.maximum(crossing(1.0, rest, offset, runner_up, room), room / (1.0 + runner_up))


@triton.jit
def improved(g, poles, near, nearer, runner_up, room):
    """The next g from the sums at this one, and a bound on the relative error left in 1 + g.

    ``near`` and ``nearer`` are ΣEρ and ΣEρ². At (1 + y)g the keys below s add Σ Eρ/(1 + yρ) to gF,
    which is convex in ρ: with all of them at the mean of ρ it is smaller (Jensen), with all of them
    at 0 and 1 larger. The first gives the next g, which is never beyond the root, and the
    difference of the two, in units of gF, bounds what is left.
    """
    some = near > 0.0
    rho = tl.where(some, nearer / tl.where(some, near, 1.0), 1.0)
    rho = tl.minimum(rho, 1.0)
    following = crossing(poles, near / rho, g * (1.0 - rho) / rho, runner_up, room)
    y = (following - g) / g
    left = rho * (1.0 - rho) * y * y / ((1.0 + y) * (1.0 + y * rho))
    return following, left * near / (poles + near)
