"""How long a watch takes, beside a CUSUM that knows the baseline, the noise and the size of the change.

    python tests/bench/delays.py [--series 200] [--write]

The reference (Page 1954) is tuned to the true change, k = half of it, with the threshold that gives it one false alarm in
500,000 samples (Siegmund's approximation), about what the detectors have on white noise. Of each detector the samples to
its first crossing are counted and, apart, those to what it says: crossing and confirmation. Medians over the found ones;
--write puts them into delays.toml, from which the catalogue is made.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from detectors import shifts, spikes, spread, throughput
from detectors.finding import Finding
from detectors.noise import CHUNK
from detectors.series import Array
from detectors.window import LOOKBACK, Chunk, Detector

ARL = 500_000  # samples
BEFORE, AFTER = 2_304, 2_048  # samples of a series before the change (and up to a chunk more), and behind it


def threshold(k: float) -> float:
    """Of a one-sided CUSUM of unit noise with allowance k: the one with that average run length (Siegmund 1985)."""

    def excess(h: float) -> float:  # its exponent stays below what a float holds
        b = h + 1.166
        return (math.exp(2 * k * b) - 2 * k * b - 1) / (2 * k * k) - ARL

    return float(brentq(excess, -1.166, 300.0 / k - 2.0))


def tuned(z: Array, k: float, h: float) -> int | None:
    """Samples after which a one-sided CUSUM of z crosses h; 1 is the first sample."""
    walk = np.cumsum(z - k)
    level = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
    over = np.flatnonzero(level > h)
    return int(over[0]) + 1 if len(over) else None


def said(detector: Detector, value: Array, role: str, onset: int, kinds: tuple[str, ...]) -> int | None:
    """Samples from the onset to the first finding of these kinds, whose direction is not a better one."""
    step, state = np.arange(1.0, len(value) + 1), {}
    for start in range(0, len(value), CHUNK):
        low = max(0, start - LOOKBACK)
        part = slice(low, start + CHUNK)
        chunk = Chunk(low, start, step[part], value[part], np.full(len(step[part]), np.nan), "m", role)
        found, state = detector.scan(chunk, state)  # type: ignore[assignment]
        for index, answer in found:
            if isinstance(answer, Finding) and index >= onset and answer.kind in kinds and answer.severity > 0:
                return index - onset + 1
    return None


@contextmanager
def crossings() -> Iterator[list[int]]:
    """The sample indices at which the sums of the shift and spread detectors were over their thresholds."""
    alarm, sums, seen = shifts._alarm, spread._sums, []

    def shifted(chunk: Chunk, values: Any, base: Any, k: int, *rest: Any) -> Any:
        seen.append(chunk.start + k)
        return alarm(chunk, values, base, k, *rest)

    def widened(chunk: Chunk, index: int, wide: Any, away: Any, line: Any, now: dict[str, Any]) -> Any:
        out = sums(chunk, index, wide, away, line, now)
        if out or now["plain"] > spread.PLAIN_H or now["up"] > spread.H:
            seen.append(index)
        return out

    shifts._alarm, spread._sums = shifted, widened  # type: ignore[assignment]
    try:
        yield seen
    finally:
        shifts._alarm, spread._sums = alarm, sums


Row = tuple[str, float | None, float | None, float | None, float]  # change; reference, crossing, said; share found


def measure(name: str, series: int, one: Callable[[np.random.Generator, int], tuple[int | None, ...]]) -> Row:
    """Medians over `series` series; `one` gives reference, crossing and said for a chance and an onset."""
    rows = []
    for seed in range(series):
        rng = np.random.default_rng([seed, 4])
        rows.append(one(rng, BEFORE + int(rng.integers(CHUNK))))
    columns = [[v for v in column if v is not None] for column in zip(*rows, strict=True)]
    middle = [float(np.median(column)) if column else None for column in columns]
    return name, middle[0], middle[1], middle[2], len(columns[2]) / series


def level(size: float) -> Callable[[np.random.Generator, int], tuple[int | None, ...]]:
    def one(rng: np.random.Generator, onset: int) -> tuple[int | None, ...]:
        noise = rng.standard_normal(onset + AFTER)
        noise[onset:] += size
        value = (1.7 + 8 * np.arange(1.0, len(noise) + 1) ** -0.35) * np.exp(0.006 * noise)
        with crossings() as seen:
            after = said(shifts, value, "loss", onset, ("level",))  # type: ignore[arg-type]
        crossed = [index - onset + 1 for index in seen if index >= onset]
        return tuned(noise[onset:], size / 2, threshold(size / 2)), min(crossed, default=None), after

    return one


def spike(size: float) -> Callable[[np.random.Generator, int], tuple[int | None, ...]]:
    def one(rng: np.random.Generator, onset: int) -> tuple[int | None, ...]:
        noise = rng.standard_normal(onset + AFTER)
        noise[onset:] += size * np.exp(-np.arange(AFTER) / 10)
        value = (1.7 + 8 * np.arange(1.0, len(noise) + 1) ** -0.35) * np.exp(0.006 * noise)
        after = said(spikes, value, "loss", onset, ("spike",))  # type: ignore[arg-type]
        return tuned(noise[onset:], size / 2, threshold(size / 2)), after, after

    return one


def wider(ratio: float) -> Callable[[np.random.Generator, int], tuple[int | None, ...]]:
    """The reference sums the log-likelihood ratio of the two widths, at Wald's bound for that run length."""

    def one(rng: np.random.Generator, onset: int) -> tuple[int | None, ...]:
        noise = rng.standard_normal(onset + AFTER)
        noise[onset:] *= ratio
        value = (1.7 + 8 * np.arange(1.0, len(noise) + 1) ** -0.35) * np.exp(0.006 * noise)
        with crossings() as seen:
            after = said(spread, value, "loss", onset, ("variance",))  # type: ignore[arg-type]
        crossed = [index - onset + 1 for index in seen if index >= onset]
        likelihood = noise[onset:] ** 2 * (1 - 1 / ratio**2) / 2 - math.log(ratio)
        return tuned(likelihood, 0.0, math.log(ARL)), min(crossed, default=None), after

    return one


def slower(share: float) -> Callable[[np.random.Generator, int], tuple[int | None, ...]]:
    def one(rng: np.random.Generator, onset: int) -> tuple[int | None, ...]:
        noise = rng.standard_normal(onset + AFTER)
        value = 40.0 * np.exp(0.009 * noise)
        value[onset:] *= 1 - share
        after = said(throughput, value, "mfu", onset, ("level",))  # type: ignore[arg-type]
        size = share / 0.009
        low = np.flatnonzero(value[onset:] < 40 * (1 - throughput.LEAST))
        first = int(low[0]) + 1 if len(low) else None
        return tuned(size - noise[onset:], size / 2, threshold(size / 2)), first, after

    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    series = given.series
    about = (
        f"Median samples over {series} made series a change (white noise; loss 0.6 %, MFU 0.9 %), measured {date.today()} "
        "by `python tests/bench/delays.py`. The CUSUM knows baseline, noise and size of the change and alarms once in "
        "500,000 samples; the detector knows none of it. What lies between crossing and saying is confirmation."
    )
    lines = [f"about = {json.dumps(about)}"]
    print(f"| change | CUSUM tuned to it | first crossing | said | crossing over CUSUM | found |\n|---|{'---:|' * 5}")
    cases = [(f"loss, level {a:g} sigma", level(a)) for a in (1.5, 2, 3, 4)]
    cases += [(f"loss, spike {a:g} sigma", spike(a)) for a in (8, 12)]
    cases += [(f"loss, {a:g} times its spread", wider(a)) for a in (1.25, 1.5, 2)]
    cases += [(f"MFU, {a:.0%} slower", slower(a)) for a in (0.05, 0.15)]
    for name, one in cases:
        what, *medians, found = measure(name, series, one)
        reference, crossing, words = (math.nan if median is None else median for median in medians)
        figures = {"cusum": reference, "crossing": crossing, "said": words, "found": found}
        print(
            f"| {what} | {reference:g} | {crossing:g} | {words:g} | {crossing / reference:.2f} | {found:.0%} |",
            flush=True,
        )
        lines += [
            "",
            "[[delay]]",
            f"change = {json.dumps(what)}",
            *(f"{key} = {value}" for key, value in figures.items()),
        ]
    if given.write:
        (Path(__file__).parent / "delays.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
