"""What smaller runs say of a larger one, metric by metric: a curve, its band, and what it is not good for. No verdicts.

Bands come from leaving one rung out (ladder_bands.py). Behind the end of a rung that stopped early fewer rungs speak and the
band is wider. What is returned is JSON-able, and all that a judge needs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detectors import ladder_bands, ladder_curves, ladder_law
from detectors.ladder_rungs import CENTRES, START, Z90, Binned, Line, Rung, binned, refused, trend
from detectors.noise import BLOCK
from detectors.series import Array

VERSION = 1
LEAST = 3  # rungs for a band
FLOOR = {
    "loss": 0.003,
    "eval_loss": 0.01,
    "param_norm": 0.005,
}  # of a shape: one size and another seed differ by as much
FIRST = 16  # samples whose median is where a norm began
LOGIT_FLOOR = 1e-4


def transformed(role: str, value: Array, base: float = 1.0) -> Array:
    """The scale on which a role is compared: logit of fractions, log of losses, log of norms over where they began (`base`),
    log of what an entropy lacks to the highest one (`base`).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if role in ("token_drop", "eval_score"):
            inside = np.clip(value, LOGIT_FLOOR, 1 - LOGIT_FLOOR)
            return np.where(np.isfinite(value) & (value <= 1), np.log(inside / (1 - inside)), np.nan)
        if role == "router_entropy":
            return np.where(np.isfinite(value) & (value < base), np.log(base - value), np.nan)
        return np.where(np.isfinite(value) & (value > 0), np.log(value / base), np.nan)


def as_logged(role: str, value: Array, base: float = 1.0) -> Array:
    """What `transformed` made of it, back on the scale of the metric."""
    if role in ("token_drop", "eval_score"):
        return np.asarray(1 / (1 + np.exp(-value)))
    return np.asarray(base - np.exp(value) if role == "router_entropy" else base * np.exp(value))


def began(value: Array) -> float:
    """Where a norm began: the median of its first samples."""
    first = value[np.isfinite(value) & (value > 0)][:FIRST]
    return float(np.median(first)) if len(first) else math.nan


def base_of(value: Array, at: float, expected: Mapping[str, Any]) -> float:
    """Where a norm began, by samples from that share of the schedule on; behind the warm-up as if it had kept to the curve."""
    if at <= START:
        return began(value)
    return began(value) / math.exp(float(np.interp(at, expected["at"], expected["centre"])))


def most(lines: Sequence[Line]) -> float:
    """The highest entropy that the routers of all rungs can have: of the fewest experts that allow what was seen."""
    seen = max(float(np.nanmax(line.value)) for line in lines)
    return math.log(math.floor(math.exp(seen)) + 1)


def behind(expected: Mapping[str, Any], at: float, size: float) -> float | None:
    """The share of the tokens so far (and so of the compute) that a loss higher by `size` is worth; None on a flat curve."""
    shares = np.array([at * 0.9, at * 1.1])
    low, high = np.interp(shares, expected["at"], expected["centre"])
    slope = (float(high) - float(low)) / math.log(1.1 / 0.9)
    return math.expm1(min(size / -slope, 5.0)) if slope < -1e-4 else None


CURVES = ("token_drop", "router_entropy", "grad_norm", "param_norm", "eval_score")
LAWS = ("loss", "eval_loss")


def fit(
    rungs: Sequence[Rung],
    parameters: float,
    settings: Mapping[str, str],
    rate: Line | None = None,
    tokens: float | None = None,
) -> dict[str, Any]:
    """Expectations for a run of that many active parameters; `rate` is its planned learning rate by share, `tokens` those of
    its whole schedule. Where the tokens of one of them are not known, all are taken to go with the parameters.

    Raises ValueError where no metric has three comparable rungs.
    """
    large = Rung("", parameters, {} if rate is None else {"": rate}, tokens=tokens)
    why = {rung.name: refused(rung, settings) for rung in rungs}
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    names = sorted({(name, line.role) for rung in rungs for name, line in rung.lines.items()})
    for name, role in names:
        if role not in (*CURVES, *LAWS):
            continue
        able = [r for r in rungs if role not in why[r.name] and _speaks(r, name)]
        if len(able) < LEAST:
            reasons = sorted({each[role] for each in why.values() if role in each})
            missing[name] = "; ".join([f"{len(able)} of at least {LEAST} rungs", *reasons])
            continue
        metrics[name] = _metric(name, role, able, large)
    if not metrics:
        raise ValueError("; ".join(sorted(set(missing.values()))) or "the rungs have no metric that could be expected")
    _given_loss(metrics, rungs)
    return {
        "version": VERSION,
        "parameters": parameters,
        "settings": dict(settings),
        "rungs": [
            {"name": r.name, "parameters": r.parameters, "ended": r.ended, "censored": r.is_censored} for r in rungs
        ],
        "refused": {name: reasons for name, reasons in why.items() if reasons},
        "not_expected": missing,
        "at": CENTRES.tolist(),
        "metrics": metrics,
    }


def _speaks(rung: Rung, name: str) -> bool:
    """Whether a rung has enough of a metric behind its warm-up."""
    return name in rung.lines and int((rung.lines[name].at >= 2 * CENTRES[0]).sum()) > 8


def _metric(name: str, role: str, rungs: Sequence[Rung], large: Rung) -> dict[str, Any]:
    base = most([rung.lines[name] for rung in rungs]) if role == "router_entropy" else 1.0
    lines = [_line(rung.lines[name], base) for rung in rungs]
    sizes = [rung.size for rung in rungs]
    *places, wanted = places_of(rungs, large)

    def predict(keep: Sequence[int], place: ladder_law.Place) -> tuple[Array, Array]:
        known = [lines[k] for k in keep]
        if role in LAWS:
            return ladder_law.fit([places[k] for k in keep], known).predict(place)
        curve = ladder_curves.fit([sizes[k] for k in keep], known)
        return curve.at(place.size), np.zeros(len(CENTRES))

    everyone = range(len(rungs))
    centre, open_ = predict(everyone, wanted)
    misses = [lines[k].mean - predict([other for other in everyone if other != k], places[k])[0] for k in everyone]
    spread = ladder_bands.spread(misses, lines, sizes, wanted.size)
    fewer = _fewer(rungs)
    # what the asymptote leaves open is in the misses already, unless it is more than they say
    known = np.hypot(spread.total, ladder_law.EXACT) if role in LAWS else spread.total
    total = np.maximum(known, open_) * fewer
    body: dict[str, Any] = {
        "role": role,
        "base": base,
        "rungs": [rung.name for rung in rungs],
        "centre": centre.tolist(),
        "sd": total.tolist(),
        "wide": spread.wide,
        "level_sd": spread.level * float(fewer.min()),
        "shape_sd": max(spread.shape, FLOOR.get(role, 0.0)) * float(fewer.min()),
        "noise": math.exp(trend(sizes, [math.log(max(line.noise, 1e-9)) for line in lines], wanted.size)),
        "censored_from": min((rung.ended for rung in rungs if rung.is_censored), default=None),
    }
    if role in LAWS:
        end = float(centre[-3:].mean())
        half = Z90 * float(total[-3:].mean())
        body["final"] = {"value": math.exp(end), "low": math.exp(end - half), "high": math.exp(end + half)}
    if role == "grad_norm":
        peaks = [
            float(CENTRES[int(np.nanargmax(line.mean))])
            for line, r in zip(lines, rungs, strict=True)
            if not r.is_censored
        ]
        body["peak"] = {"at": float(np.mean(peaks)), "sd": float(np.std(peaks, ddof=1)) if len(peaks) > 1 else 0.1}
    return body


def _line(line: Line, base: float = 1.0) -> Binned:
    if line.role == "token_drop":  # zeros have no logit: blocks are averaged before
        at, value = (rows[: len(rows) // BLOCK * BLOCK].reshape(-1, BLOCK) for rows in (line.at, line.value))
        return binned(at[:, -1], transformed(line.role, value.mean(axis=1)))
    base = began(line.value) if line.role == "param_norm" else base
    return binned(line.at, transformed(line.role, line.value, base))


def places_of(rungs: Sequence[Rung], large: Rung) -> list[ladder_law.Place]:
    """Where the rungs and then the large run stand; a rate that is not known is that of the rungs that ran to their end."""
    rates = [each.rate() for each in rungs]
    complete = [each for each, rung in zip(rates, rungs, strict=True) if each is not None and not rung.is_censored]
    known = [each.tokens for each in (*rungs, large)]
    tokens = [each.size if None in known else math.log(each.tokens or 1.0) for each in (*rungs, large)]
    schedules = [ladder_law.schedule_of(each, complete) for each in (*rates, large.rate())]
    return [
        ladder_law.Place(each.size, count, schedule)
        for each, count, schedule in zip((*rungs, large), tokens, schedules, strict=True)
    ]


def _fewer(rungs: Sequence[Rung]) -> Array:
    """How much wider the band is at each bin, where some rungs have ended."""
    speak = np.sum([[rung.ended >= at for at in CENTRES] for rung in rungs], axis=0)
    return np.asarray(np.sqrt(len(rungs) / np.maximum(speak, 1)))


def _given_loss(metrics: dict[str, Any], rungs: Sequence[Rung]) -> None:
    """How an evaluation goes with the loss over all rungs: so that it can be judged given the loss that a run has."""
    losses = [name for name, body in metrics.items() if body["role"] == "loss"]
    for body in (each for each in metrics.values() if each["role"] in ("eval_loss", "eval_score")):
        if not losses:
            continue
        name = next(n for n, each in metrics.items() if each is body)
        both = [rung for rung in rungs if name in rung.lines and losses[0] in rung.lines]
        pairs = [(_line(rung.lines[losses[0]]).mean, _line(rung.lines[name]).mean) for rung in both]
        x, y = (np.concatenate(each) for each in zip(*pairs, strict=True))
        good = np.isfinite(x) & np.isfinite(y)
        slope, cut = np.polyfit(x[good], y[good], 1)
        spread = float(np.std(y[good] - slope * x[good] - cut))
        sd = max(spread, FLOOR.get(body["role"], 0.02))
        body["given"] = {"loss": losses[0], "slope": float(slope), "cut": float(cut), "sd": sd}
