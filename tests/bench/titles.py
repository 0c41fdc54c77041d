"""Is what the title of an incident says true? Its numbers are read back and held against the findings and the samples.

    faults({"title": "loss jumped from 3.41 to 24.8 at step 5", ...}, {"loss": (step, value)})  -> [] when all is true

Three readings: every number must be one of a finding (as printed, to three digits); verbs must agree with the direction of
the two numbers; and what stands before and after must lie where the samples were before and after.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flows.messages.document import FindingDoc, IncidentDoc

Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # step and value of every sample, all attempts
N = r"(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)"
UP, DOWN = r"(?:jumped|has risen|climbs|diverged)", r"(?:dropped|has fallen|fell)"
NEAR = 300  # samples on each side of the onset in which the two levels must be found


def faults(incident: IncidentDoc, samples: Mapping[str, Line]) -> list[str]:
    """What is untrue of the title, a line each."""
    title = _own_words_apart(incident)
    if title is None:  # a user's words are the user's
        return []
    found = incident["findings"]
    return [*_steps(title, incident), *_levels(title, found, samples), *_slopes(title, found), *_company(title, found)]


def _own_words_apart(incident: IncidentDoc) -> str | None:
    return None if any(f["detector"] in ("bounds", "checks") for f in incident["findings"]) else incident["title"]


def read(text: str) -> float:
    """The number of a title: "165,504" is 165504."""
    return float(text.replace(",", ""))


def same(said: float, true: float) -> bool:
    """Equal to the three digits that titles carry."""
    return math.isclose(said, true, rel_tol=0.006, abs_tol=1e-12)


def _numbers(found: Sequence[FindingDoc], *keys: str) -> list[float]:
    values = [f["evidence"].get(key) for f in found for key in keys]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]


def _steps(title: str, incident: IncidentDoc) -> Iterator[str]:
    known = [f["onset_step"] for f in incident["findings"]] + [incident.get("resolved_step")]
    for said in re.findall(rf"\bstep {N}", title) + re.findall(rf"done again from {N} on", title):
        if not any(k is not None and math.isclose(read(said), k, abs_tol=0.51) for k in known):
            yield f"step {said} is no onset or recovery"


def _levels(title: str, found: Sequence[FindingDoc], samples: Mapping[str, Line]) -> Iterator[str]:
    for match in re.finditer(rf"\bfrom {N} to {N}(?: and settled at {N})?", title):
        before, after = read(match[1]), read(match[2])
        owners = [f for f in found if any(same(before, v) for v in _numbers([f], "before", "train_before"))]
        owners = [f for f in owners if any(same(after, v) for v in _numbers([f], "after", "peak", "train_after"))]
        if not owners:
            yield f"no finding goes from {match[1]} to {match[2]}"
            continue
        if match[3] and not any(same(read(match[3]), v) for v in _numbers(found, "after")):
            yield f"nothing settled at {match[3]}"
        verb = title[: match.start()].rsplit(maxsplit=3)[-3:]
        words = " ".join(verb)
        if (re.search(UP + "$", words) and after < before) or (re.search(DOWN + "$", words) and after > before):
            yield f"the verb of {match[0]!r} points the other way"
        if not any(_was_so(f, before, after, samples) for f in owners if f["metric"]):
            yield f"the samples do not go {match[0]}"


def _was_so(finding: FindingDoc, before: float, after: float, samples: Mapping[str, Line]) -> bool:
    """The earlier number lies in the range of the samples before the onset, the later one in that of those after it."""
    if finding["kind"] in ("stall", "invariant", "overfit", "ladder", "schedule") or finding["metric"] not in samples:
        return True
    step, value = samples[finding["metric"]]
    good = np.isfinite(value)
    step, value = step[good], value[good]
    at, seen = finding["onset_step"], finding["detected_step"]
    long = finding["kind"] in ("trend", "variance", "plateau")
    gap = float(finding["evidence"].get("cadence") or 1.0)
    earlier = value[(step < at) & (step >= at - NEAR * gap)] if not long else value[step <= seen]
    later = value[(step >= at) & (step <= max(seen, at + NEAR * gap))]
    return _within(before, earlier) and _within(after, later)


def _within(said: float, values: NDArray[np.float64]) -> bool:
    if not len(values):
        return True
    low, high = float(values.min()), float(values.max())
    room = 0.006 * max(abs(low), abs(high)) + 0.05 * (high - low)
    return low - room <= said <= high + room


def _slopes(title: str, found: Sequence[FindingDoc]) -> Iterator[str]:
    for said, unit in re.findall(rf"{N} % per {N} steps", title):
        rates = [math.expm1(min(v * read(unit) / 10_000, 20.0))
                 for v in _numbers(found, "slope_per_10k", "slope_before_per_10k")]  # fmt: skip
        if not any(math.isclose(abs(read(said)), 100 * abs(r), rel_tol=0.06, abs_tol=0.51) for r in rates):
            yield f"no slope is {said} % per {unit} steps"


def _company(title: str, found: Sequence[FindingDoc]) -> Iterator[str]:
    metrics = sorted({f["metric"] for f in found if f["metric"]}, key=len, reverse=True)
    name = "(" + "|".join(map(re.escape, metrics)) + ")" if metrics else "(?!)"
    for metric, factor in re.findall(rf"with {name} x{N}", title):
        mine = [f for f in found if f["metric"] == metric]
        ratios = [b / a for f in mine for a in _numbers([f], "before") for b in _numbers([f], "after", "peak") if a]
        if not any(same(read(factor), r) for r in ratios):
            yield f"{metric} did not move by x{factor}"
    for gap, when in re.findall(rf"{N} steps? (earlier|later)", title):
        onsets = [f["onset_step"] for f in found]
        sign = -1 if when == "earlier" else 1
        if not any(math.isclose(b - a, sign * read(gap), abs_tol=0.51) for a in onsets for b in onsets):
            yield f"nothing lies {gap} steps {when}"
    for out in re.findall(rf"stayed for {N} samples", title):
        if not any(same(read(out), v) for v in _numbers(found, "samples_out")):
            yield f"nothing stayed for {out} samples"
    for share, metric in [(s, m) for m, s in re.findall(rf"{name} carries {N} %", title)]:
        mine = [f for f in found if f["metric"] == metric]
        if not any(same(read(share), 100 * min(v, 1.0)) for v in _numbers(mine, "growth_share")):
            yield f"{metric} does not carry {share} %"
