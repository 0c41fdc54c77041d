"""A folder of static files that is brought up to date: what has not changed is neither made nor written.

What each file was made from stands as a digest in `.record.json` of the folder; a file that is no longer wanted is
removed, and nothing that did not come from here is touched.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from flows.errors import BadConfig
from flows.incidents.incident import plain
from flows.stages.publish import write_whole

SCHEMA = "watchkeeper.record/1"
MANIFEST = ".record.json"


@dataclass
class Written:
    """Files by what became of them, as paths inside the folder."""

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass
class Known:
    """What is remembered of a folder.

    `files`: of each path the digest of what it was made from. `pages`: of those that show samples up to a step for good,
    the digest of everything else and that step. `runs`: of each folder of a run what its samples were like.
    """

    files: dict[str, str] = field(default_factory=dict)
    pages: dict[str, tuple[str, float]] = field(default_factory=dict)
    runs: dict[str, list[int]] = field(default_factory=dict)


class Folder:
    """The files under `out`. Raises BadConfig for a folder of something else, OSError."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.before = _known(out)
        self.now = Known()
        self.done = Written()

    def put(self, path: str, source: Any, render: Callable[[], bytes]) -> None:
        """Write a file, unless it is there and was made from the same, or comes out the same."""
        file, made = self.out / path, digest(source)
        there = path in self.before.files and file.is_file()
        content = None if there and self.before.files[path] == made else render()
        self.now.files[path] = made
        if content is None or (there and content == file.read_bytes()):
            self.done.kept.append(path)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
        self.done.written.append(path)

    def until(self, path: str) -> float:
        """The step up to which a page shows samples; infinite where that is not known or not for good."""
        return self.before.pages.get(path, ("", math.inf))[1] if (self.out / path).is_file() else math.inf

    def settle(self, path: str, words: str, until: float) -> None:
        """Remember that a page shows no sample later than `until`, and the digest of everything else that it shows."""
        if math.isfinite(until):
            self.now.pages[path] = words, until

    def keep(self, path: str, words: str) -> bool:
        """Keep a page of the same words, whose samples are known to be the same; False where the words are others."""
        if self.before.pages.get(path, ("", 0.0))[0] != words or path not in self.before.files:
            return False
        self.now.files[path], self.now.pages[path] = self.before.files[path], self.before.pages[path]
        self.done.kept.append(path)
        return True

    def finish(self) -> Written:
        """Remove what was not put this time, and remember what was."""
        for path in sorted(self.before.files.keys() - self.now.files.keys()):
            if (self.out / path).resolve().is_relative_to(self.out.resolve()):
                (self.out / path).unlink(missing_ok=True)
                self.done.removed.append(path)
        for folder in {(self.out / path).parent for path in self.done.removed} - {self.out}:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        known = {"files": self.now.files, "pages": self.now.pages, "runs": self.now.runs}
        write_whole(self.out / MANIFEST, as_json({"schema": SCHEMA, **known}))
        return self.done


def as_json(value: Any) -> bytes:
    """A file of JSON for people, too."""
    return (json.dumps(plain(value), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode("utf-8", "replace")


def digest(source: Any) -> str:
    """Of what a file is made from, and of the code that makes it: a new version makes everything anew."""
    return hashlib.sha256(_renderers().encode() + json.dumps(plain(source), sort_keys=True).encode()).hexdigest()[:24]


@cache
def _renderers() -> str:
    total = hashlib.sha256()
    for package in ("flows.record", "flows.messages"):
        for file in sorted(resources.files(package).iterdir(), key=lambda f: f.name):
            if file.name.endswith(".py"):
                total.update(file.read_bytes())
    return total.hexdigest()


def _known(out: Path) -> Known:
    file = out / MANIFEST
    if not out.exists() or (out.is_dir() and not file.exists() and not any(out.iterdir())):
        out.mkdir(parents=True, exist_ok=True)
        return Known()
    if not file.is_file():
        raise BadConfig(f"--out {out}: this folder holds something else; give an empty or a new one.")
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        files = {str(path): str(made) for path, made in told["files"].items()}
        pages = {str(path): (str(words), float(until)) for path, (words, until) in told.get("pages", {}).items()}
        return Known(files, pages, dict(told.get("runs", {})))
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise BadConfig(f"{file}: cannot be read; give another folder, or remove this one.") from None
