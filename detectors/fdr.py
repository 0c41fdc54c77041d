"""Online control of the false discovery rate with a memory that fades: LORD for rare anomalies in endless streams.

The level of test t is q (1 - d) + q * sum over rejections r of d^(t-r) g(t-r), with g the sequence of Javanmard and
Montanari (2018), which sums to one, and d = 1 - 1/MEMORY. So, at every t, the levels spent, faded by d, are at most
q (1 + R), with R the rejections faded the same way; with p-values that are super-uniform under their null hypothesis
this keeps E[V / (1 + R)] <= q, V the false rejections: Ramdas et al. (2017) with the smoothing of Rebjock et al.
(NeurIPS 2021, arXiv 2112.03196). The floor q (1 - d) never dies, however long nothing happens. There is no larger
budget at the start, as those have: at the start of a run baselines are youngest.

What is tested at one step depends on one another, so a rejection pays for tests of later steps only.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Q = 0.1
MEMORY = 10_000  # tests: one false rejection in 100,000 tests of nulls is the price of the floor
KEPT = 32  # rejections remembered; to forget an older one only lowers the level
FREEDOM = 8  # a scatter estimated from about ten residuals, and the tails of real noise


class Trial(NamedTuple):
    """The p-value of one metric and window; tests are taken in this order."""

    end: float  # step of the window's last sample
    name: str
    p: float


class Verdict(NamedTuple):
    """Whether the test was rejected at level `alpha`; it was number `tests` of its stream."""

    rejected: bool
    alpha: float
    tests: int


def gamma(age: int) -> float:
    """Share of a rejection's reward that the test `age` tests later gets; sums to at most one."""
    return 0.07720838 * math.log(max(age, 2)) / (age * math.exp(math.sqrt(math.log(age))))


def judged(tests: Iterable[Trial], memory: Mapping[str, Any]) -> tuple[list[Verdict], dict[str, Any]]:
    """Verdicts of the tests in their order, and the memory behind them.

    The memory is {"tests": count, "rejected": [[number of the test, step], ...]}, empty at first.
    """
    count, rejected = memory.get("tests", 0), list(memory.get("rejected", []))
    keep = 1 - 1 / MEMORY
    said = []
    for test in tests:
        count += 1
        ages = [count - number for number, end in rejected if end < test.end] if test.p < 1 else []
        alpha = Q / MEMORY + Q * sum(keep**age * gamma(age) for age in ages)
        said.append(Verdict(test.p <= alpha, alpha, count))
        if said[-1].rejected:
            rejected = [*rejected, [count, test.end]][-KEPT:]
    return said, {"tests": count, "rejected": rejected}


def two_sided(z: float) -> float:
    """P(|T| >= |z|) of Student's t with eight degrees of freedom, by its finite series."""
    angle = math.atan(abs(z) / math.sqrt(FREEDOM))
    c = math.cos(angle) ** 2
    return max(0.0, 1 - math.sin(angle) * (1 + c / 2 + 3 * c**2 / 8 + 5 * c**3 / 16))
