"""Critical values of a kink at a free point and at an event: python tests/bench/sup_f.py [--series 200000] [--seed 0]

Lines with noise, white or with the autocorrelation that a test for memory lets through; the largest HAC F of a kink over the
middle 70 % of a window. Andrews (1993, 2003) tabulates breaks of a level: 12.2 at 1 % for one parameter and 15 % trimming.
"""

import argparse

import numpy as np
from scipy.signal import lfilter

from detectors.hinges import best_kink, middle
from detectors.kinks import AFTER

LEVELS = (0.05, 0.01, 0.001, 0.0001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for blocks, free in ((60, True), (80, True), (100, True), (70, False), (90, False)):
        for phi in (0.0, 0.2):
            rng = np.random.default_rng([given.seed, blocks])
            step = np.arange(blocks, dtype=float)
            noise = lfilter([1.0], [1.0, -phi], rng.standard_normal((given.series, blocks + 50)))[:, 50:]
            at = middle(step) if free else step[-AFTER - 1 : -AFTER]
            found = [best_kink(step, each, at).f for each in noise]
            values = np.quantile(found, [1 - level for level in LEVELS])
            told = ", ".join(f"{level:g}: {value:.1f}" for level, value in zip(LEVELS, values, strict=True))
            print(f"{'free' if free else 'event'}, {blocks} blocks, autocorrelation {phi}: {told}", flush=True)


if __name__ == "__main__":
    main()
