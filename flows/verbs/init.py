"""`watchkeeper init`: a commented watchkeeper.toml for runs that were opened and looked at."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.config import FILE
from flows.errors import BadConfig

if TYPE_CHECKING:
    from flows.sources.contract import Source

_HEAD = """\
# What watchkeeper watches. `watchkeeper doctor` says whether all of this works,
# `watchkeeper watch --once` makes one pass, `watchkeeper serve` keeps watching.
# Relative paths are relative to this file.

[store]
url = "watchkeeper.duckdb"    # a DuckDB file; `watchkeeper sql` asks it anything

[watch]
interval = "60s"              # or, for `serve`: cron = "*/5 * * * *"
out = "watchkeeper-pages"     # a page with charts for each run; leave it out for none
# heartbeat_url = "env:HEARTBEAT_URL"   # pinged after each good pass: an outside monitor notices when it stops
"""

_TAIL = """
# Whom to tell. The URL is one of Apprise's (https://appriseit.com/services), and a secret: export it and name
# the variable (env:NAME), or keep it in a file (file:/path). S2 = investigate this shift, S3 and S4 = page.
[[channel]]
name = "folder"
url = "folder:watchkeeper-alerts"    # writes each message into a folder: good for a first look
min_severity = "S2"

# [[channel]]
# name = "on-call"
# url = "env:SLACK_URL"       # slack://..., discord://..., mailtos://..., msteams://...
# min_severity = "S3"
# runs = ["*"]                # shell patterns of run names

# Limits of your own, beside what the detectors find (docs/bounds.md). No planned event explains them away.
# [[bound]]
# role = "mfu"                # or metric = "disk/*", a name or shell pattern
# below = 30                  # and / or above
# samples = 20                # so many in a row (1)
# severity = "S3"             # S0 to S4 (S2)
# why = "ask the data team first"   # stands in the alert

# SQL of your own whose rows are findings: run, metric, step, and what else docs/bounds.md names.
# [[check]]
# sql = "checks/behind_reference.sql"
# severity = "S2"

# Lines of a console log that no built-in pattern reads (docs/sources.md): a named group is a metric, `step` the step.
# [[pattern]]
# name = "ours"
# regex = 'it (?P<step>\\d+) of \\d+: L=(?P<loss>\\S+) dt=(?P<step_time>[\\d.]+)ms'
# scale = {step_time = 0.001}   # what a number is multiplied by

# What a metric is, where its name does not tell (docs/roles.md lists the roles):
# [roles."my/custom_loss"]
# role = "loss"
"""


def init(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="training logs: files, folders or addresses")],
    config: Annotated[Path, typer.Option(help="the file to write")] = Path(FILE),
    force: Annotated[bool, typer.Option("--force", help="replace a file that is there")] = False,
) -> None:
    """Look at each run, then write a configuration that watches them.

    Exit status: 0 written, 2 a run could not be read or the file is there already.

    Example: watchkeeper init runs/a/metrics.jsonl runs/b/trainer_state.json
    """
    from flows.sources.catalogue import open_sources

    if config.exists() and not force:
        raise BadConfig(f"{config}: is there already; give --force to replace it, or --config for another file.")
    folder = config.absolute().parent
    sections = []
    for target in dict.fromkeys(runs):
        seen = [_look(source) for source in open_sources(target)]
        for line in seen:
            print(f"{target}: {line}")  # noqa: T201
        sections.append(_section(_as_written(target, folder), seen))
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(_HEAD + "".join(sections) + _TAIL, encoding="utf-8")
    print(f"wrote {config}; next: watchkeeper watch --once")  # noqa: T201


def _look(source: "Source") -> str:
    """What a source is, from its first batch."""
    from flows.sources.roles import role_of

    found = source.describe()
    batch = next(iter(source.pull(None)), None)
    names = batch.rows["name"].unique().to_list() if batch is not None else []
    roles = Counter(role_of(name).role for name in names)
    known = ", ".join(f"{role} ({n})" for role, n in sorted(roles.items()) if role != "other") or "none known"
    other = f", {roles['other']} without a role" if roles["other"] else ""
    return f"run {found.run!r}, {found.format}, step {found.step_key!r}, {len(names)} metrics: {known}{other}"


def _section(target: str, seen: list[str]) -> str:
    notes = "".join(f"# {line}\n" for line in seen)
    return f"\n[[run]]\n{notes}source = {json.dumps(target, ensure_ascii=False)}\n"


def _as_written(target: str, folder: Path) -> str:
    """Relative to the configuration where it lies below it, else absolute: a watch may run from anywhere."""
    from flows.sources.addresses import scheme_of

    if scheme_of(target):
        return target
    path = Path(target).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
