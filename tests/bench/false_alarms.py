"""False alarms on made null series: python tests/bench/false_alarms.py [--runs 25] [--seed 0] [--write]

Series of 20,000 samples in which nothing happens, with the noise that real runs have (white, heavy-tailed, autocorrelated);
prints findings per 100,000 samples by detector and severity, and with --write puts them into quiet.toml, from which the
catalogue is made. Made series, since only nothing is asked for.
"""

import argparse
import json
import zlib
from collections import Counter
from datetime import date
from pathlib import Path

import numpy as np

from detectors import Finding, Series, inspect

SIZE = 20_000
# name: (role, autocorrelation, degrees of freedom of the tails or None, relative noise, power-law trend)
CASES = {
    "loss, white": ("loss", 0.0, None, 0.005, True),
    "loss, t with 4 degrees": ("loss", 0.0, 4, 0.01, True),
    "loss, AR(1) 0.5": ("loss", 0.5, None, 0.01, True),
    "loss, AR(1) 0.9": ("loss", 0.9, None, 0.01, True),
    "gradient norm, AR(1) 0.8": ("grad_norm", 0.8, None, 0.1, False),
    "gradient norm, AR(1) 0.95": ("grad_norm", 0.95, None, 0.1, False),
    "gradient norm, t with 3 degrees": ("grad_norm", 0.0, 3, 0.1, False),
    "MFU, white 0.9 %": ("mfu", 0.0, None, 0.009, False),
    "token drops, AR(1) 0.5": ("token_drop", 0.5, None, 0.05, False),
    "router entropy, AR(1) 0.5": ("router_entropy", 0.5, None, 0.0003, False),
}


def noise(rng: np.random.Generator, phi: float, degrees: int | None) -> np.ndarray:
    """SIZE samples of unit scale."""
    shocks = rng.standard_normal(SIZE) if degrees is None else rng.standard_t(degrees, SIZE)
    if phi == 0:
        return shocks
    out = np.empty(SIZE)
    out[0] = shocks[0]
    for i in range(1, SIZE):
        out[i] = phi * out[i - 1] + np.sqrt(1 - phi * phi) * shocks[i]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    about = (
        f"Findings per 100,000 samples, {given.runs * SIZE:,} samples a series, measured {date.today()} by "
        f"`python tests/bench/false_alarms.py` (seed {given.seed}). "
        f"None means at most {3 / (given.runs * SIZE) * 1e5:.1f} at 95 % (Poisson)."
    )
    rates: dict[str, dict[str, float]] = {}
    step = np.arange(1, SIZE + 1, dtype=float)
    print(f"findings per 100,000 samples, {given.runs * SIZE:,} samples a case, seed {given.seed}")
    for name, (role, phi, degrees, scale, trend) in CASES.items():
        rng = np.random.default_rng([given.seed, zlib.crc32(name.encode())])
        found: Counter[str] = Counter()
        for _ in range(given.runs):
            base = np.log(1.7 + 8 * step**-0.35) if trend else np.log(0.03 if role == "token_drop" else 2.0)
            value = np.exp(base + scale * noise(rng, phi, degrees))
            said = inspect(Series(step, value, role=role))
            found.update(f"{a.detector} S{a.severity}" for a in said if isinstance(a, Finding))
        rates[name] = {what: round(n / (given.runs * SIZE) * 1e5, 1) for what, n in sorted(found.items())}
        print(f"  {name}: {', '.join(f'{what} {rate}' for what, rate in rates[name].items()) or 'none'}", flush=True)
    if given.write:
        lines = [f"about = {json.dumps(about)}", ""]
        for name, each in rates.items():
            lines += [
                f"[findings_per_100k.{json.dumps(name)}]",
                *(f"{json.dumps(k)} = {v}" for k, v in each.items()),
                "",
            ]
        (Path(__file__).parent / "quiet.toml").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
