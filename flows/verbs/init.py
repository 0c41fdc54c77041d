"""`watchkeeper init`: a commented watchkeeper.toml for runs that were opened and looked at."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.config import FILE
from flows.errors import BadConfig

if TYPE_CHECKING:
    from flows.records import Batch
    from flows.sources.contract import Source
    from flows.sources.relaunches import Proposal, Seen

MOST = 5_000_000  # rows that are read of a log to see where it ends

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
# remind = "30m"              # a page (S3, S4) that nobody has acknowledged is told again this often
"""

_TAIL = """
# Whom to tell. The URL is one of Apprise's (https://appriseit.com/services), and a secret: export it and name
# the variable (env:NAME), keep it in a file (file:/path), or in a block of Prefect (block:secret/name).
# From S2 on: investigate this shift; S3 and S4 are pages.
[[channel]]
name = "folder"
url = "folder:watchkeeper-alerts"    # writes each message into a folder: good for a first look
min_severity = "S2"

# [[channel]]
# name = "on-call"
# url = "env:MAIL_URL"        # mailtos://..., tgram://..., ntfy://..., or any other of Apprise's
# min_severity = "S3"
# runs = ["*"]                # shell patterns of run names
# quiet = {begin = "22:00", end = "07:00", zone = "Europe/Berlin", passes = "S3"}   # below S3 it waits until 07:00
# limit = {most = 20, each = "1h"}      # more wait for their turn; pages pass
# digest = {each = "1d"}      # what is below min_severity, from S1 on, in one message; or {steps = 5000}

# What goes where, beyond that: a channel that a route names gets only what one of its routes gives it (docs/channels.md).
# [[route]]
# to = ["on-call"]
# tags = ["prod"]             # of the [[run]] (tags = ["prod"])
# roles = ["loss", "grad_norm"]
# min_severity = "S3"

# Services by their own API (docs/channels.md has the steps): one live message an incident, or one page.
# [[channel]]
# name = "team"
# service = "slack"           # one message an incident, kept current, the rest in its thread
# to = "C0123456789"          # the channel's id
# token = "env:SLACK_TOKEN"   # xoxb-..., scopes chat:write and files:write
# ack_link = true             # a link that acknowledges; needs [phone]
# [[channel]]
# name = "discord"
# service = "discord"
# url = "env:DISCORD_URL"     # the webhook's address; to = "forum" for a forum channel
# [[channel]]
# name = "teams"
# service = "teams"
# url = "env:TEAMS_URL"       # of the workflow "Post to a channel when a webhook request is received"
# [[channel]]
# name = "record"
# service = "github"          # a comment an incident on a tracking issue, edited in place
# to = "owner/repository#12"
# token = "env:GITHUB_TOKEN"
# [[channel]]
# name = "pager"
# service = "pagerduty"       # or "opsgenie"
# token = "env:PAGER_KEY"     # of an Events API V2 integration (Opsgenie: of an API integration)
# min_severity = "S3"
# severities = {S3 = "critical"}   # the service's word for ours
# [[channel]]
# name = "prometheus"
# service = "alertmanager"
# url = "http://alertmanager:9093"
# [[channel]]
# name = "ours"
# service = "webhook"         # signed JSON
# url = "https://hooks.example.org/watchkeeper"
# token = "env:HOOK_SECRET"

# Acknowledge from a phone: `serve` answers signed links and the webhooks of PagerDuty and Opsgenie here.
# [phone]
# secret = "env:PHONE_SECRET"         # openssl rand -hex 32
# url = "https://watch.example.org"   # your reverse proxy, with TLS
# listen = "127.0.0.1:8787"
# valid = "24h"
# pagerduty_secret = "env:PAGERDUTY_WEBHOOK_SECRET"
# opsgenie_secret = "env:OPSGENIE_WEBHOOK_SECRET"

# The operating record, a static site that may be published (docs/record.md), kept up to date by the watch.
# [record]
# out = "record"
# url = "https://runs.example/record/"   # where it is served: messages link to the page of their incident
# runs = ["hero*"]            # shell patterns of what is published (all)

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

    Several that look like one run, restarted, are proposed as one.

    Exit status: 0 written, 2 a run could not be read or the file is there already.

    Example: watchkeeper init runs/a/metrics.jsonl runs/b/trainer_state.json
    """
    from flows.sources.catalogue import open_sources

    if config.exists() and not force:
        raise BadConfig(f"{config}: is there already; give --force to replace it, or --config for another file.")
    folder = config.absolute().parent
    notes: dict[str, list[str]] = {}
    alone: dict[str, tuple[Source, Batch | None]] = {}
    for target in dict.fromkeys(runs):
        written, found = _as_written(target, folder), open_sources(target)
        firsts = [next(iter(source.pull(None)), None) for source in found]
        notes[written] = [_look(source, batch) for source, batch in zip(found, firsts, strict=True)]
        for line in notes[written]:
            print(f"{target}: {line}")  # noqa: T201
        if len(found) == 1:  # a segment is one run
            alone[written] = found[0], firsts[0]
    together = _together(alone)
    for each in together:
        print(f"{each.name}: {len(each.parts)} of these look like one run: {each.why}")  # noqa: T201
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(_HEAD + _sections(notes, together) + _TAIL, encoding="utf-8")
    print(f"wrote {config}; next: watchkeeper watch --once")  # noqa: T201


def _look(source: "Source", batch: "Batch | None") -> str:
    """What a source is, from its first batch."""
    from flows.sources.roles import role_of

    found = source.describe()
    names = batch.rows["name"].unique().to_list() if batch is not None else []
    roles = Counter(role_of(name).role for name in names)
    known = ", ".join(f"{role} ({n})" for role, n in sorted(roles.items()) if role != "other") or "none known"
    other = f", {roles['other']} without a role" if roles["other"] else ""
    return f"run {found.run!r}, {found.format}, step {found.step_key!r}, {len(names)} metrics: {known}{other}"


def _together(alone: "Mapping[str, tuple[Source, Batch | None]]") -> "list[Proposal]":
    """Which sources look like one run; those that may be are read further than their first batch."""
    from flows.sources.addresses import scheme_of
    from flows.sources.relaunches import akin, propose

    firsts = {written: [] if batch is None else [batch] for written, (_, batch) in alone.items()}
    known = {written: _seen(written, alone[written][0], batches) for written, batches in firsts.items()}
    counts = Counter(each.run for each in known.values())
    for written, each in known.items():
        if counts[each.run] > 1 and not scheme_of(written):  # `metrics.jsonl` in several folders
            known[written] = replace(each, run=Path(written).resolve().parent.name)
    for each in akin(list(known.values())):
        if not scheme_of(each.source):  # a server is not asked for a whole history
            source = alone[each.source][0]
            known[each.source] = replace(_seen(each.source, source, source.pull(None)), run=each.run)
    return propose(list(known.values()))


def _seen(written: str, source: "Source", batches: "Iterable[Batch]") -> "Seen":
    """Steps and times of the first MOST rows."""
    import numpy as np

    from flows.sources.relaunches import Seen

    found = source.describe()
    steps, rows, times = np.empty(0), 0, []
    whole = not isinstance(batches, list)
    for batch in batches:
        steps = np.union1d(steps, batch.rows["step"].to_numpy())
        times += [at for at in (batch.rows["logged_at"].min(), batch.rows["logged_at"].max()) if at is not None]
        rows += len(batch.rows)
        if rows >= MOST:
            whole = False
            break
    clock = [at.replace(tzinfo=UTC).timestamp() for at in times if isinstance(at, datetime)]
    began, ended = (min(clock), max(clock)) if clock else (None, None)
    return Seen(written, found.run, steps, whole, began, ended, found.kin)


def _sections(notes: Mapping[str, Sequence[str]], together: "Sequence[Proposal]") -> str:
    """A [[run]] for each target, and one for all that look like one run where the first of them stands."""
    mine = {part.seen.source: each for each in together for part in each.parts}
    sections, told = [], set()
    for written, lines in notes.items():
        each = mine.get(written)
        if each is None:
            sections.append(f"\n[[run]]\n{_comments(lines)}source = {_text(written)}\n")
        elif each.name not in told:
            told.add(each.name)
            sections.append(_logical(each, notes))
    return "".join(sections)


def _logical(each: "Proposal", notes: Mapping[str, Sequence[str]]) -> str:
    """The [[run]] of several segments, with why, and how to have it otherwise."""
    why = [
        f"These {len(each.parts)} look like one run: {each.why},",
        "and each begins where one before it was. docs/sources.md says what is hidden then. To watch them apart, give",
        "each a [[run]] of its own with its `source`.",
    ]
    parts = []
    for part in each.parts:
        seen = part.seen
        end = f"to {seen.last:.15g}" if seen.whole else "on (not read to its end)"
        lines = [f"\n[[run.segment]]\n{_comments(notes[seen.source])}# steps {seen.first:.15g} {end}\n"]
        lines.append(f"source = {_text(seen.source)}\n")
        if part.last is not None:
            lines.append(f"last = {part.last:.15g}    # what it logged behind this step was done again\n")
        if part.parent:
            lines.append(f"parent = {_text(part.parent)}\n")
        parts.append("".join([*lines, f"reason = {_text(part.reason)}\n"]))
    return f"\n{_comments(why)}[[run]]\nname = {_text(each.name)}\n{''.join(parts)}"


def _comments(lines: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in lines)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _as_written(target: str, folder: Path) -> str:
    """Relative to the configuration where it lies below it, else absolute: a watch may run from anywhere."""
    from flows.sources.addresses import scheme_of

    if scheme_of(target):
        return target
    path = Path(target).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
