"""watchkeeper.toml: what to watch, how often, whom to tell. All that is wrong is told at once, file and key first.

Secrets are never written into the file: a value `env:NAME` or `file:/path` says where one is.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, SecretStr, ValidationError, model_validator

from flows.errors import BadConfig
from flows.phoning import PhoneSection
from flows.sections import (
    OURS,
    BoundSection,
    ChannelSection,
    CheckSection,
    DigestSection,
    LadderSection,
    LimitSection,
    MixtureSection,
    PatternSection,
    PlanSection,
    QuietSection,
    RecordSection,
    RetentionSection,
    RoleSection,
    RouteSection,
    RungSection,
    RunSection,
    Section,
    SegmentSection,
    SizeSection,
    StageSection,
    StoreSection,
    WatchSection,
)
from flows.values import known

FILE = "watchkeeper.toml"


class Config(Section):
    """The whole file. Paths are absolute once it is loaded."""

    store: StoreSection = StoreSection()
    run: tuple[RunSection, ...] = ()
    watch: WatchSection = WatchSection()
    channel: tuple[ChannelSection, ...] = ()
    route: tuple[RouteSection, ...] = ()
    roles: dict[str, RoleSection] = Field(default_factory=dict)
    bound: tuple[BoundSection, ...] = ()
    check: tuple[CheckSection, ...] = ()
    pattern: tuple[PatternSection, ...] = ()
    record: RecordSection = RecordSection()
    phone: PhoneSection | None = None
    ladder: LadderSection = LadderSection()
    path: Path = Field(default=Path(FILE), exclude=True)

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        named = {
            "channel": [each.name for each in self.channel],
            "run": [each.label for each in self.run],
            "check": [each.label for each in self.check],
            "pattern": [each.name for each in self.pattern],
            "ladder.rung": [each.name for each in self.ladder.rung],
        }
        for what, names in named.items():
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"two entries [[{what}]] are called {', '.join(twice)}; give each its own name")
        channels = named["channel"]
        if gone := sorted({name for route in self.route for name in route.to} - set(channels)):
            raise ValueError(f"a [[route]] leads to {', '.join(gone)}; channels are {', '.join(channels) or 'none'}")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> "Config":
        linked = [each.name for each in self.channel if each.ack_link]
        if linked and (self.phone is None or not self.phone.url):
            raise ValueError(f"channel {linked[0]} has ack_link; it needs [phone] with its url and secret")
        return self

    def takes(
        self, channel: ChannelSection, run: str, tags: Collection[str], roles: Collection[str], severity: int
    ) -> bool:
        """Whether a channel is told of an incident: by its own severity and runs, and by a route where some name it."""
        routes = [each for each in self.route if channel.name in each.to]
        by_route = not routes or any(each.takes(run, tags, roles, severity) for each in routes)
        return by_route and channel.takes(run, severity)

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
    raw = _toml(path)
    if store := os.environ.get("WATCHKEEPER_STORE"):
        raw = {**raw, "store": {**_table(raw.get("store")), "url": str(Path(store).absolute())}}
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise _problems(path, error) from None
    return _absolute(config, path)


def load_plan(path: Path) -> PlanSection:
    """A plan from a TOML file, at its top or in a table [plan]. Raises BadConfig that lists every problem."""
    raw = _toml(path)
    try:
        return PlanSection.model_validate(raw["plan"] if raw.keys() == {"plan"} else raw)
    except ValidationError as error:
        raise _problems(path, error, ("plan",)) from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: this is no TOML: {error}") from None
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from None


def _problems(path: Path, error: ValidationError, within: tuple[int | str, ...] = ()) -> BadConfig:
    lines = [
        f"{path}: {_where((*within, *item['loc']))}{_said({**item, 'loc': (*within, *item['loc'])})}"
        for item in error.errors(include_url=False)
    ]
    return BadConfig("\n".join(lines))


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


_INNER: dict[str, type[BaseModel]] = {  # the deepest first
    "mixture": MixtureSection,
    **dict.fromkeys(("tokens_per_step", "batch_size", "sequence_length"), StageSection),
    "plan": PlanSection,
    "rung": RungSection,
    "ladder": SizeSection,
    "roles": RoleSection,
    "segment": SegmentSection,
    "retention": RetentionSection,
    "quiet": QuietSection,
    "limit": LimitSection,
    "digest": DigestSection,
}


def _keys(location: tuple[int | str, ...]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "store": StoreSection,
        "run": RunSection,
        "watch": WatchSection,
        "channel": ChannelSection,
        "route": RouteSection,
        "bound": BoundSection,
        "check": CheckSection,
        "pattern": PatternSection,
        "record": RecordSection,
        "phone": PhoneSection,
        "ladder": LadderSection,
        "plan": PlanSection,  # of a file of its own
    }
    names = [part for part in location if isinstance(part, str)]
    inner = next((model for name, model in _INNER.items() if name in names[1:]), None)
    model = Config if not names else inner or sections[names[0]]
    return [name for name in model.model_fields if name not in OURS]


def _absolute(config: Config, path: Path) -> Config:
    """Relative paths are relative to the file."""
    folder = path.parent
    runs = tuple(
        run.model_copy(
            update={
                "source": _from(folder, run.source) if run.source else "",
                "written": run.source,
                "reference": _reference(folder, config, run),
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
        if (url := known(each.url)).startswith("folder:")
        else each
        for each in config.channel
    )
    out = None if config.watch.out is None else Path(_from(folder, str(config.watch.out)))
    record = None if config.record.out is None else Path(_from(folder, str(config.record.out)))
    return config.model_copy(
        update={
            "path": path,
            "store": config.store.model_copy(update={"url": _from(folder, config.store.url)}),
            "run": runs,
            "channel": channels,
            "check": tuple(
                each.model_copy(update={"sql": Path(_from(folder, str(each.sql)))}) for each in config.check
            ),
            "ladder": config.ladder.model_copy(
                update={
                    "rung": tuple(
                        each.model_copy(update={"source": _from(folder, each.source)}) for each in config.ladder.rung
                    )
                }
            ),
            "watch": config.watch.model_copy(update={"out": out}),
            "record": config.record.model_copy(update={"out": record}),
        }
    )


def _reference(folder: Path, config: Config, run: RunSection) -> str:
    """The name of another run, or the path of one beside the file."""
    known = run.reference in ("", *(each.label for each in config.run))
    return run.reference if known or not (folder / run.reference).exists() else _from(folder, run.reference)


def _from(folder: Path, text: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]+:", text, re.IGNORECASE):
        return text  # a URL, or ":memory:"-like; paths with a scheme are none
    return str(folder / Path(text).expanduser())
