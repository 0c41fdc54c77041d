"""A W&B run over its GraphQL API: public projects without an account, others with a key.

The questions are those of W&B's own SDK (HistoryPage and SampledHistoryPage of wandb 0.31; sampledHistory with a step
range since 2019): history(minStep, maxStep, samples) gives whole rows, and all of them as long as the range is no wider
than `samples`. Rows with histograms are asked for by their numbers: a spec of keys gives only rows that have all of
them, so keys of every row share one spec and each sparse key has its own.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from flows.errors import SourceUnavailable
from flows.records import Batch, Description, Kin
from flows.sources.contract import refuse
from flows.sources.wandb_address import WandbAddress, api_key
from flows.sources.wandb_history import ALIVE, FORMAT, OURS, STEP, History
from flows.sources.web import TooMuch, ask, open_client

PAGE = 1_000  # steps at a time, as W&B's SDK does
VALUES = 200_000  # of a page, about
SPECS = 50  # sparse keys in one question
_TIME = "_timestamp"
_RUN = "project(name: $project, entityName: $entity) { run(name: $run) { %s } }"
_NAMES = "$entity: String!, $project: String!, $run: String!"
ABOUT = f"query WatchedRun({_NAMES}) {{ {_RUN % 'name group state createdAt historyLineCount historyKeys'} }}"
WHOLE = (
    f"query HistoryPage({_NAMES}, $minStep: Int64!, $maxStep: Int64!, $pageSize: Int!) "
    f"{{ {_RUN % 'history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize)'} }}"
)
BY_KEY = f"query SampledHistoryPage({_NAMES}, $specs: [JSONString!]!) {{ {_RUN % 'sampledHistory(specs: $specs)'} }}"


@dataclass(frozen=True)
class About:
    """What the server says of a run: rows so far, its last step, and for each key how many values of which type."""

    state: str
    created: str
    lines: int
    last_step: int
    types: Mapping[str, Mapping[str, int]]
    group: str = ""

    @property
    def over(self) -> bool:
        """Whether its last row is whole: a running one may still add to it."""
        return self.state not in ALIVE

    @property
    def page(self) -> int:
        """Steps at a time: rows of thousands of metrics come in smaller pages, so that memory stays bounded."""
        return min(PAGE, max(10, VALUES // max(1, len(self.types))))

    @property
    def has_histograms(self) -> bool:
        return any("histogram" in counts for counts in self.types.values())


@dataclass(frozen=True)
class WandbRun:
    """One run. `wanted` is the user's step key."""

    address: WandbAddress
    run: str
    source: str
    wanted: str | None = None
    group: str = ""

    def describe(self) -> Description:
        kin = Kin(self.address.run, self.group)
        return Description(self.run, self.source, FORMAT, self.wanted or STEP, kin)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        with _client(self.address) as client:
            about = self.about(client)
            history = History(self.source, cursor, self.wanted, about.created)
            end = about.last_step + about.over  # exclusive
            if history.last_step is not None and history.last_step > about.last_step:
                history.begin_anew()
            at, page = history.last_step or 0, about.page
            width = page
            while at < end:
                upto = min(at + width, end)
                try:
                    rows = self._rows(client, about, at, upto)
                except TooMuch:
                    if width == 1:
                        raise
                    width = max(1, width // 4)
                    continue
                if len(rows) >= page // 2 and upto - at > page:
                    width = max(page, width // 4)  # so many that the server may have thinned them
                    continue
                if at == history.last_step and (not rows or rows[0][STEP] != at):
                    history.begin_anew()
                    at = 0
                    continue
                for row in rows:
                    history.add(row)
                    if history.full and (batch := history.take()) is not None:
                        yield batch
                at = upto
                # steps may count samples or tokens: few rows in many steps
                width = min(4 * width, 1 << 60) if len(rows) < page // 8 else max(page, width)
            if about.over and not about.has_histograms:
                history.missing(about.lines)
            if (batch := history.take()) is not None:
                yield batch

    def about(self, client: httpx.Client) -> About:
        """Raises BadInput where there is no such run, or none that may be read."""
        run = self._asked(client, ABOUT)
        try:
            keys = run.get("historyKeys") or {}
            types = {name: _types(said) for name, said in (keys.get("keys") or {}).items()}
            lines, last = int(run.get("historyLineCount") or 0), int(keys.get("lastStep", -1))
        except (AttributeError, TypeError, ValueError):
            raise self._strange("historyKeys") from None
        return About(str(run.get("state")), str(run.get("createdAt")), lines, last, types, str(run.get("group") or ""))

    def _rows(self, client: httpx.Client, about: About, low: int, high: int) -> list[dict[str, Any]]:
        """Rows with low <= _step < high, in the order of their steps."""
        if about.has_histograms:
            return self._rows_by_key(client, about, low, high)
        answer = self._asked(client, WHOLE, minStep=low, maxStep=high, pageSize=about.page)
        lines = answer.get("history")
        if not isinstance(lines, list):
            raise self._strange("history")
        try:
            rows = [json.loads(line) if isinstance(line, str) else line for line in lines]
        except ValueError:
            raise self._strange("whole row in its history") from None
        return sorted((row for row in rows if _is_within(row, low, high)), key=lambda row: row[STEP])

    def _rows_by_key(self, client: httpx.Client, about: About, low: int, high: int) -> list[dict[str, Any]]:
        steady = {name for name, counts in about.types.items() if sum(counts.values()) == about.lines}
        passed = {STEP, *(OURS - {self.wanted or STEP})}
        numbers = [name for name, counts in about.types.items() if set(counts) - _NO_NUMBERS and name not in passed]
        base = [STEP, *([_TIME] if _TIME in steady else [])]
        dense = [name for name in numbers if name in steady and name not in base]
        groups = [dense, *([name] for name in numbers if name not in steady and name not in base)]
        rows: dict[float, dict[str, Any]] = {}
        for start in range(0, len(groups), SPECS):
            part = groups[start : start + SPECS]
            specs = [
                json.dumps({"keys": base + keys, "minStep": low, "maxStep": high, "samples": about.page})
                for keys in part
            ]
            found = self._asked(client, BY_KEY, specs=specs).get("sampledHistory")
            if not isinstance(found, list) or len(found) != len(part):
                raise self._strange("sampledHistory")
            for row in (row for answered in found for row in answered or () if _is_within(row, low, high)):
                rows.setdefault(row[STEP], {}).update(row)
        return [rows[step] for step in sorted(rows)]

    def _asked(self, client: httpx.Client, query: str, **variables: Any) -> dict[str, Any]:
        """The `run` of the answer."""
        names = {"entity": self.address.entity, "project": self.address.project, "run": self.address.run}
        body = {"query": query, "variables": {**names, **variables}}
        answer = ask(client, f"{self.address.base}/graphql", self.source, body=body, login=self.address.login)
        if not isinstance(answer, dict):
            raise self._strange("data")
        if not answer.get("data") and answer.get("errors"):
            raise SourceUnavailable(f"{self.source}: W&B answers with an error: {_first(answer['errors'])}")
        try:
            run = ((answer["data"] or {}).get("project") or {}).get("run")
        except (AttributeError, KeyError):
            raise self._strange("data") from None
        if not isinstance(run, dict):
            what = "no such run, or a private one"
            raise refuse(self.source, what, f"check the address; to read what is not public {self.address.login}")
        return run

    def _strange(self, field: str) -> SourceUnavailable:
        return SourceUnavailable(f"{self.source}: the answer has no {field}; is it a W&B server of this time?")


# what historyKeys calls values that no detector can judge
_NO_NUMBERS = frozenset({"histogram", "string", "nil", "map", "list", "image-file", "images/separated", "table-file"})


def open_wandb(address: WandbAddress, source: str, step_key: str | None, run: str | None) -> WandbRun:
    """Looks whether the run is there. Raises BadInput, SourceUnavailable."""
    found = WandbRun(address, run or address.run, source, step_key)
    with _client(address) as client:
        about = found.about(client)
    if step_key is not None and about.types and step_key not in about.types:
        near = ", ".join(sorted(about.types)[:12])
        raise refuse(source, f"no {step_key!r} in its history (there is {near})", "name one of these with --step-key")
    return replace(found, group=about.group)


def _client(address: WandbAddress) -> httpx.Client:
    key = api_key(address.base)
    return open_client(auth=httpx.BasicAuth("api", key) if key else None)


def _types(said: object) -> dict[str, int]:
    counts = said.get("typeCounts") if isinstance(said, dict) else None
    return {str(each.get("type")): int(each.get("count") or 0) for each in counts or () if isinstance(each, dict)}


def _is_within(row: object, low: int, high: int) -> bool:
    step = row.get(STEP) if isinstance(row, dict) else None
    return isinstance(step, int | float) and not isinstance(step, bool) and low <= step < high


def _first(errors: object) -> str:
    """A short word of what GraphQL complains about."""
    message = errors[0].get("message") if isinstance(errors, list) and errors and isinstance(errors[0], dict) else ""
    return " ".join(str(message or "unknown").split())[:200]
