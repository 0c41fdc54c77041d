"""docs/detectors.md from the code: python tests/bench/catalogue.py > docs/detectors.md

Each detector's docstring, the roles it looks at, its constants with their comments; the measured false alarms come from
quiet.toml (false_alarms.py --write) and the delays from delays.toml (delays.py --write). tests/contracts/test_catalogue.py
fails when page and code differ.
"""

import ast
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

from detectors.suite import BY_ROLE, EVERY, JOINT, LEAF, NEEDED, POINTS

HERE = Path(__file__).parent
ALSO = {  # judged by the stages themselves: two metrics, a whole run, or what a user asks for
    "overfit": "each eval loss with the training loss",
    "ratelaw": "each whole-run gradient norm with the learning rate",
    "starved": "each whole-run wait for data with the step time",
    "stopped": "every whole-run metric of a core role, with the loss",
    "restarts": "the attempts of a run",
    "plan": "learning_rate, batch_size, sequence_length, tokens, checkpoint, loss of a run with a plan",
    "reference": "whole-run losses, norms, drops, entropies and logits of a run with a reference",
    "departure": "metrics that a ladder expects",
    "given_loss": "metrics that a ladder expects",
    "replays": "whole-run losses and gradient norms of an attempt, with its parents'",
    "bounds": "any metric that a [bound](bounds.md) names",
}
PARTS = ("Sees", "Silent", "Fooled by", "False alarms", "Units")
HEAD = """# Detectors

Made from the code by `python tests/bench/catalogue.py`; a test fails when they differ. Every detector is one file in
`detectors/`. All are causal and judge a metric on its own sample index, so samples are what thresholds count; alerts show
steps. Severity is then set by the incident: a lone loss spike stays S1, two of three samples or a joint move with the
gradient norm are S2, a lone gradient-norm spike is never above S1, and what a known event explains is S0.
"""


def names() -> list[str]:
    """Every detector that exists in this version, once."""
    tables = (EVERY, *BY_ROLE.values(), *LEAF.values(), tuple(JOINT), tuple(POINTS))
    known = {name for names in tables for name in names}
    return sorted(known | {name for name in ALSO if (HERE.parents[1] / "detectors" / f"{name}.py").exists()})


def looks_at(name: str) -> str:
    """The roles, in words."""
    if name in EVERY:
        return "every metric"
    if name in ALSO:
        return ALSO[name]
    if name in JOINT:
        return f"{', '.join(sorted(JOINT[name]))}: all leaves together"
    if name in POINTS:
        return f"{', '.join(sorted(POINTS[name]))}: all of them together, whole and by domain"
    whole = [role for role, those in BY_ROLE.items() if name in those]
    leaf = [role for role, those in LEAF.items() if name in those]
    return ", ".join(whole) + (f"; each leaf of {', '.join(leaf)}" if leaf else "")


def parts(module: ModuleType) -> Mapping[str, str]:
    """The docstring by its headings, each in one line; "" is what stands before the first."""
    text = " ".join((module.__doc__ or "").split())
    first, *rest = re.split(rf"\b({'|'.join(PARTS)}): ", text)
    return {"": first.strip(), **{name: said.strip() for name, said in zip(rest[::2], rest[1::2], strict=True)}}


def constants(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """(name, value, comment) of the module's upper-case constants, in order; values as they are written."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target).strip("()")
        value = ast.unparse(node.value)
        if re.fullmatch(r"[A-Z][A-Z_, ]*", target) and target != "DETECTOR" and len(value) <= 80:
            yield (
                target,
                value[1:-1] if value[0] == "(" else value,
                comments.get(node.lineno, comments.get(node.end_lineno or 0, "")),
            )


def _measured(file: str) -> dict[str, Any]:
    path = HERE / file
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _quiet(name: str, measured: Mapping[str, Any]) -> str:
    """What a detector said on null series, per 100,000 samples."""
    said = []
    for series, counts in measured["findings_per_100k"].items():
        mine = [f"{key.split()[1]} {rate:g}" for key, rate in counts.items() if key.split()[0] == name]
        said += [f"{series}: {', '.join(mine)}"] if mine else []
    return "; ".join(said) or "none on the series below"


def section(name: str, quiet: Mapping[str, Any]) -> str:
    """One detector."""
    module = import_module(f"detectors.{name}")
    said = parts(module)
    lines = [f"## {name}", "", said[""], "", f"- **Looks at:** {looks_at(name)}"]
    lines += [f"- **Needs:** {NEEDED[name]:,} samples"] if name in NEEDED else []
    lines += [f"- **{part}:** {said[part]}" for part in PARTS if part in said and part != "False alarms"]
    lines += [f"- **False alarms, per 100,000 null samples:** {_quiet(name, quiet)}"] if quiet else []
    own = said.get("False alarms", "")
    lines += [f"- **False alarms, elsewhere:** {own}"] if own and "docs/detectors.md" not in own else []
    rows = list(constants(module))
    if rows:
        lines += ["", "| default | value | why |", "|---|---|---|"]
        lines += [f"| `{target}` | `{value.replace('|', '/')}` | {why} |" for target, value, why in rows]
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    quiet, delays = _measured("quiet.toml"), _measured("delays.toml")
    out = [HEAD]
    if delays:
        out += [f"## Delay\n\n{delays['about']}\n"]
        out += [
            "| change | CUSUM tuned to it | first crossing | said | crossing over CUSUM | found |\n|---|---:|---:|---:|---:|---:|"
        ]
        for d in delays["delay"]:
            ratio = d["crossing"] / d["cusum"]
            figures = f"{d['cusum']:g} | {d['crossing']:g} | {d['said']:g} | {ratio:.2f} | {d['found']:.0%}"
            out += [f"| {d['change']} | {figures} |"]
        out += [""]
    if quiet:
        out += [
            f"## False alarms on series in which nothing happens\n\n{quiet['about']}\n",
            "| series | findings |\n|---|---|",
        ]
        for series, counts in quiet["findings_per_100k"].items():
            out += [f"| {series} | {', '.join(f'{what} {rate:g}' for what, rate in counts.items()) or 'none'} |"]
        out += [
            "\nLone spikes of heavy-tailed series are real excursions of theirs: notes and annotations, never more.\n"
        ]
    return "\n".join(out) + "\n" + "\n\n".join(section(name, quiet) for name in names()) + "\n"


if __name__ == "__main__":
    print(page(), end="")
