"""What `check` and `demo` print for people: the verdict first, then each incident with what to do, then what was not checked."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from detectors.suite import NEEDED
from flows.messages.document import IncidentDoc, RunDoc
from flows.verbs.terminal import Terminal

COLOURS = {"S0": "dim", "S1": "cyan", "S2": "yellow", "S3": "red", "S4": "bold white on red"}
MEANING = {"S0": "annotated", "S1": "note", "S2": "investigate this shift", "S3": "page", "S4": "page, decide now"}
WIDTH = 110  # columns where the output is no terminal
SHOWN = 12  # incidents that are shown whole


def show(run: RunDoc) -> None:
    """Print one run of the document to standard output."""
    console = Terminal(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    incidents = run["incidents"]
    console.print(_verdict(run))
    console.print(
        f"  {escape(run['format'])}, steps {_step(run['first_step'])} to {_step(run['last_step'])} ({escape(run['step_key'])}), "
        f"{run['samples']:,} samples of {len(run['metrics'])} metrics",
        style="dim",
    )
    loud = [item for item in incidents if item["severity"] != "S0"]
    for item in sorted(loud, key=lambda i: (i["severity"], i["onset_step"]), reverse=True)[:SHOWN]:
        _incident(console, item)
    if len(loud) > SHOWN:
        console.print(f"\n  and {len(loud) - SHOWN} more; --json gives all of them")
    quiet = len(incidents) - len(loud)
    if quiet:
        console.print(f"\n  {quiet} annotated (S0): short excursions and restarts that need nobody", style="dim")
    _not_checked(console, run["not_checked"])


def _verdict(run: RunDoc) -> Text:
    worst = max((item["severity"] for item in run["incidents"]), default=None)
    head = Text(f"{run['run']}: ", style="bold")
    longest = max((metric["samples"] for metric in run["metrics"]), default=0)
    if longest < NEEDED["spikes"] and worst in (None, "S0"):
        few = f"too short to judge ({longest} of {NEEDED['spikes']} samples): only gross failures were looked for, and none found"
        return head.append(few, style="yellow")
    if worst is None or worst == "S0":
        return head.append("nothing to worry about in what was checked", style="green")
    count = Counter(item["severity"] for item in run["incidents"])
    still = sum(item["status"] == "open" for item in run["incidents"] if item["severity"] >= "S2")
    parts = ", ".join(f"{count[s]} {s}" for s in ("S4", "S3", "S2", "S1") if count[s])
    return head.append(f"{parts}" + (f"; {still} still open" if still else ""), style=COLOURS[worst])


def _incident(console: Console, item: IncidentDoc) -> None:
    console.print()
    console.print(
        Text.assemble((f" {item['severity']} ", COLOURS[item["severity"]]), " ", (item["title"], "bold"),
                      (f"  [{item['status']}, {MEANING[item['severity']]}]", "dim"))
    )  # fmt: skip
    cause = item["pattern"].replace("_", " ")
    console.print(
        Padding(
            Text(
                f"looks like {cause} ({item['confidence']:.0%}); first noticed at step {_step(item['detected_step'])}"
            ),
            (0, 5),
        )
    )
    for number, each in enumerate(item["suggestions"][:3], 1):
        undo = "reversible" if each["reversible"] else "not reversible"
        console.print(
            Padding(Text.assemble((f"{number}. {each['do']}", ""), (f" ({undo}; cost: {each['cost']})", "dim")), (0, 5))
        )
        against = "; ".join(each["counter_evidence"])
        console.print(
            Padding(Text(f"why: {each['why']}" + (f" Against: {against}" if against else ""), style="dim"), (0, 8))
        )


def _not_checked(console: Console, rows: Sequence[Mapping[str, str]]) -> None:
    if not rows:
        return
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row["reason"], []).append(
            row["check"] + (f" of {row['metric']}" if row.get("metric") else "")
        )
    console.print("\n  not checked:", style="dim")
    for reason, checks in reasons.items():
        names = ", ".join(checks[:6]) + (f" and {len(checks) - 6} more" if len(checks) > 6 else "")
        console.print(Padding(Text(f"{names}: {reason}", style="dim"), (0, 5)))


def _step(step: float | None) -> str:
    return "none" if step is None else f"{step:,.15g}"
