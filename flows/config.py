"""watchkeeper.toml: what to watch, how often, whom to tell. All that is wrong is told at once, file and key first.

Secrets are never written into the file: a value `env:NAME` or `file:/path` says where one is.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from flows.errors import BadConfig
from flows.values import Address, Seconds

FILE = "watchkeeper.toml"
SEVERITIES = ("S0", "S1", "S2", "S3", "S4")
# set by us, not by the file
_OURS = frozenset({"path", "written"})

Severity = Literal["S0", "S1", "S2", "S3", "S4"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _not_ours(cls, given: Any) -> Any:
        if isinstance(given, dict) and (ours := _OURS & given.keys()):
            raise ValueError(f"no such key: {', '.join(sorted(ours))}")
        return given


class StoreSection(_Section):
    """Where watchkeeper keeps what it knows."""

    url: str = "watchkeeper.duckdb"


class RoleSection(_Section):
    """Which quantity the metrics of a pattern are, over what the dialects say."""

    role: str | None = None
    unit: str | None = None
    healthy: Literal["up", "down", "flat", "none"] | None = None
    group: str | None = None


class SegmentSection(_Section):
    """One source run of a logical run, with its first and last valid step, and the segment that it goes on from."""

    source: str = Field(min_length=1)
    name: str = ""
    first: float | None = Field(default=None, allow_inf_nan=False)
    last: float | None = Field(default=None, allow_inf_nan=False)
    parent: str = ""
    reason: str = "segment"
    written: str = Field(default="", exclude=True)

    @property
    def label(self) -> str:
        """Its name, or the source as it stands in the file."""
        return self.name or self.written or self.source

    @model_validator(mode="after")
    def _in_order(self) -> "SegmentSection":
        if self.first is not None and self.last is not None and self.last < self.first:
            raise ValueError(f"last {self.last:g} lies before first {self.first:g}; swap them")
        return self


class RunSection(_Section):
    """One thing to watch: a file or folder, or a URL; or, as one run, several that went on where others stopped."""

    source: str = ""
    segment: tuple[SegmentSection, ...] = ()
    name: str | None = Field(default=None, min_length=1)
    step_key: str | None = None
    roles: dict[str, RoleSection] = {}
    written: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _one_or_several(self) -> "RunSection":
        if bool(self.source) == bool(self.segment):
            raise ValueError("set either source, or a [[run.segment]] for each source run of it")
        if self.segment and self.name is None:
            raise ValueError("name is missing; a run of several segments must have one")
        known: list[str] = []
        for each in self.segment:
            if each.label in known:
                raise ValueError(f"two segments are called {each.label}; give each its own name")
            if each.parent and each.parent not in known:
                before = ", ".join(known) or "none"
                raise ValueError(f"segment {each.label}: no segment before it is called {each.parent} ({before})")
            known.append(each.label)
        return self

    @property
    def label(self) -> str:
        """What to call it before its source was opened: its name, or the source as it stands in the file."""
        return self.name or self.written or self.source


class WatchSection(_Section):
    """How often, and what to do beside alerting."""

    interval: Annotated[Seconds, Field(ge=1)] = 60.0
    cron: str | None = None
    heartbeat_url: Address | None = None
    out: Path | None = None

    @model_validator(mode="after")
    def _one_schedule(self) -> "WatchSection":
        if self.cron is not None and "interval" in self.model_fields_set:
            raise ValueError("interval and cron are both set; keep one of them")
        if self.cron is not None and len(self.cron.split()) != 5:
            raise ValueError(f"cron {self.cron!r} does not have five fields; write for instance '*/5 * * * *'")
        return self

    @property
    def every(self) -> timedelta:
        """The interval."""
        return timedelta(seconds=self.interval)


class ChannelSection(_Section):
    """Whom to tell, from which severity on, about which runs (shell patterns)."""

    name: str = Field(min_length=1)
    url: Address
    min_severity: Severity = "S2"
    runs: tuple[str, ...] = ("*",)

    def takes(self, run: str, severity: int) -> bool:
        """Whether an incident of this run and severity (0..4) goes here."""
        return severity >= SEVERITIES.index(self.min_severity) and any(fnmatchcase(run, glob) for glob in self.runs)


class BoundSection(_Section):
    """A limit of the user's own for metrics by name (a shell pattern) or role, in the runs of a shell pattern."""

    metric: str | None = Field(default=None, min_length=1)
    role: str | None = Field(default=None, min_length=1)
    above: float | None = Field(default=None, allow_inf_nan=False)
    below: float | None = Field(default=None, allow_inf_nan=False)
    samples: int = Field(default=1, ge=1)
    severity: Severity = "S2"
    run: str = "*"
    why: str = ""

    @model_validator(mode="after")
    def _whole(self) -> "BoundSection":
        if (self.metric is None) == (self.role is None):
            raise ValueError("set either metric (a name or shell pattern) or role, and not both")
        if self.above is None and self.below is None:
            raise ValueError("set above or below, or both: beyond which number is it a finding?")
        if self.above is not None and self.below is not None and self.above < self.below:
            raise ValueError(
                f"above {self.above:g} and below {self.below:g}: every value would be a finding; swap them"
            )
        return self

    @property
    def label(self) -> str:
        """`role mfu below 40`."""
        sides = [
            f"{side} {limit:g}" for side, limit in (("above", self.above), ("below", self.below)) if limit is not None
        ]
        return f"{f'role {self.role}' if self.role else self.metric} {' or '.join(sides)}"


class CheckSection(_Section):
    """A SQL file of the user's own whose rows are findings."""

    sql: Path
    name: str = ""
    severity: Severity = "S2"
    run: str = "*"
    why: str = ""

    @property
    def label(self) -> str:
        """Its name, or that of the file."""
        return self.name or self.sql.stem


class PatternSection(_Section):
    """Lines of console logs that no pattern of ours reads: a regular expression whose named groups are metrics."""

    name: str = Field(min_length=1)
    regex: str = Field(min_length=1)
    names: dict[str, str] = {}
    scale: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = {}


class Config(_Section):
    """The whole file. Paths are absolute once it is loaded."""

    store: StoreSection = StoreSection()
    run: tuple[RunSection, ...] = ()
    watch: WatchSection = WatchSection()
    channel: tuple[ChannelSection, ...] = ()
    roles: dict[str, RoleSection] = {}
    bound: tuple[BoundSection, ...] = ()
    check: tuple[CheckSection, ...] = ()
    pattern: tuple[PatternSection, ...] = ()
    path: Path = Field(default=Path(FILE), exclude=True)

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        named = {
            "channel": [each.name for each in self.channel],
            "run": [each.label for each in self.run],
            "check": [each.label for each in self.check],
            "pattern": [each.name for each in self.pattern],
        }
        for what, names in named.items():
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"two entries [[{what}]] are called {', '.join(twice)}; give each its own name")
        return self

    def roles_of(self, run: RunSection) -> dict[str, dict[str, str]]:
        """The overrides for one run: its own before those for all."""
        merged = {**run.roles, **{name: role for name, role in self.roles.items() if name not in run.roles}}
        return {name: role.model_dump(exclude_none=True) for name, role in merged.items()}


def find_config(given: str | Path | None = None) -> Path:
    """The file: as given, else $WATCHKEEPER_CONFIG, else ./watchkeeper.toml. Raises BadConfig if it is not there."""
    path = Path(given or os.environ.get("WATCHKEEPER_CONFIG") or FILE).expanduser()
    if not path.is_file():
        raise BadConfig(f"{path}: there is no such configuration; `watchkeeper init RUN...` writes one")
    return path.resolve()


def load_config(given: str | Path | None = None) -> Config:
    """Read and check the file; raises BadConfig that lists every problem. $WATCHKEEPER_STORE overrules store.url."""
    path = find_config(given)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: this is no TOML: {error}") from None
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from None
    if store := os.environ.get("WATCHKEEPER_STORE"):
        raw = {**raw, "store": {**_table(raw.get("store")), "url": str(Path(store).absolute())}}
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        lines = [f"{path}: {_where(item['loc'])}{_said(item)}" for item in error.errors(include_url=False)]
        raise BadConfig("\n".join(lines)) from None
    return _absolute(config, path)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _where(location: tuple[int | str, ...]) -> str:
    """`run[2].source`, counted from one as people count."""
    text = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return f"{text}: " if text else ""


def _said(item: Any) -> str:
    kind, location = item["type"], item["loc"]
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(location[-1]), _keys(location[:-1]), n=1, cutoff=0.5)
        return "no such key" + (
            f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_keys(location[:-1]))}"
        )
    if kind == "missing":
        return "is missing; it must be set"
    text = str(item["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:] if text[:2].istitle() else text


def _keys(location: tuple[int | str, ...]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "store": StoreSection,
        "run": RunSection,
        "watch": WatchSection,
        "channel": ChannelSection,
        "bound": BoundSection,
        "check": CheckSection,
        "pattern": PatternSection,
    }
    names = [part for part in location if isinstance(part, str)]
    inner = next(
        (model for name, model in (("roles", RoleSection), ("segment", SegmentSection)) if name in names), None
    )
    model = Config if not names else inner or sections[names[0]]
    return [name for name in model.model_fields if name not in _OURS]


def _absolute(config: Config, path: Path) -> Config:
    """Relative paths are relative to the file."""
    folder = path.parent
    runs = tuple(
        run.model_copy(
            update={
                "source": _from(folder, run.source) if run.source else "",
                "written": run.source,
                "segment": tuple(
                    each.model_copy(update={"source": _from(folder, each.source), "written": each.source})
                    for each in run.segment
                ),
            }
        )
        for run in config.run
    )
    channels = tuple(
        each.model_copy(update={"url": SecretStr(f"folder:{_from(folder, url[7:].removeprefix('//'))}")})
        if (url := each.url.get_secret_value()).startswith("folder:")
        else each
        for each in config.channel
    )
    out = None if config.watch.out is None else Path(_from(folder, str(config.watch.out)))
    return config.model_copy(
        update={
            "path": path,
            "store": StoreSection(url=_from(folder, config.store.url)),
            "run": runs,
            "channel": channels,
            "check": tuple(
                each.model_copy(update={"sql": Path(_from(folder, str(each.sql)))}) for each in config.check
            ),
            "watch": config.watch.model_copy(update={"out": out}),
        }
    )


def _from(folder: Path, text: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]+:", text, re.IGNORECASE):
        return text  # a URL, or ":memory:"-like; paths with a scheme are none
    return str(folder / Path(text).expanduser())
