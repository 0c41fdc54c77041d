"""A W&B run through W&B's own SDK, for those who ask for it with `wandb+sdk://entity/project/id`.

The plain reader is the default because it needs no account for public runs, and neither a 100 MB package nor a helper
program; it asks the same questions. The SDK also reads histories that a server has exported to Parquet. It starts
threads and a service, so it runs in a process of its own with folders of its own, and nothing of it is left behind.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from flows.errors import SourceUnavailable
from flows.records import Batch, Description
from flows.sources.contract import refuse
from flows.sources.wandb_address import WandbAddress, api_key
from flows.sources.wandb_history import ALIVE, FORMAT, STEP, History

SILENCE_SECONDS = 300.0  # between two rows
_FOLDERS = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR")
_QUIET = {
    "WANDB_SILENT": "true", "WANDB_QUIET": "true", "WANDB_CONSOLE": "off", "WANDB_ERROR_REPORTING": "false",
    "WANDB_DISABLE_GIT": "true", "DO_NOT_TRACK": "1",
}  # fmt: skip


@dataclass(frozen=True)
class SdkRun:
    """One run, read by a child process."""

    address: WandbAddress
    run: str
    source: str
    wanted: str | None = None

    def describe(self) -> Description:
        return Description(self.run, self.source, FORMAT, self.wanted or STEP)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        lines = self._lines(_last(cursor))
        try:
            about = next(lines)
            history = History(self.source, cursor, self.wanted, str(about["created"]))
            first = next(lines, None)
            if _last(cursor) and (first is None or first[STEP] != history.last_step):
                # what was read last is gone, or the cursor is of something else
                history.begin_anew()
                lines.close()
                lines = self._lines(0)
                about, first = next(lines), next(lines, None)
            end = about["last_step"] + (about["state"] not in ALIVE)
            for row in chain([first] if first else [], lines):
                if row[STEP] < end:
                    history.add(dict(sorted(row.items())))  # the SDK gives names in any order
                if history.full and (batch := history.take()) is not None:
                    yield batch
        finally:
            lines.close()
        if (batch := history.take()) is not None:
            yield batch

    def _lines(self, first: int) -> Generator[dict[str, Any]]:
        """What the child says; closing it ends the child."""
        with tempfile.TemporaryDirectory(prefix="watchkeeper-wandb-") as folder:
            child = subprocess.Popen(
                [sys.executable, "-m", "flows.sources.wandb_sdk_child"],
                env=self._environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                assert child.stdin is not None
                path = f"{self.address.entity}/{self.address.project}/{self.address.run}"
                child.stdin.write(json.dumps([path, first]).encode())
                child.stdin.close()
                yield from self._read(child)
            finally:
                child.kill()
                child.wait()

    def _read(self, child: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
        assert child.stdout is not None
        rest = b""
        while True:
            if not select.select([child.stdout], [], [], SILENCE_SECONDS)[0]:
                raise SourceUnavailable(f"{self.source}: W&B's SDK has said nothing for {SILENCE_SECONDS:.0f} s")
            block = os.read(child.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "end" in said:
                    return
                if "error" in said:
                    raise self._failed(said)
                yield said
            if not block:
                raise SourceUnavailable(f"{self.source}: W&B's SDK ended early; the next pass asks again")

    def _failed(self, said: dict[str, Any]) -> Exception:
        if said["login"]:
            return refuse(self.source, "W&B's SDK reads nothing without an account", self.address.login)
        if said["final"]:
            return refuse(self.source, "no such run, or a private one", f"check the address, or {self.address.login}")
        return SourceUnavailable(f"{self.source}: W&B's SDK failed ({said['error']}); the next pass asks again")

    def _environment(self, folder: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "WANDB_API_KEY"}
        key = api_key(self.address.base)
        roots = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return {
            **kept, **_QUIET, **dict.fromkeys(_FOLDERS, folder), "WANDB_BASE_URL": self.address.base,
            **({"WANDB_API_KEY": key} if key else {}), "PYTHONPATH": roots,
        }  # fmt: skip


def open_with_sdk(address: WandbAddress, source: str, step_key: str | None, run: str | None) -> SdkRun:
    """Raises BadInput where the SDK is not installed."""
    if find_spec("wandb") is None:
        raise refuse(source, "W&B's SDK is not installed", "pip install 'watchkeeper[wandb]', or write wandb://")
    return SdkRun(address, run or address.run, source, step_key)


def _last(cursor: str | None) -> int:
    try:
        return int(json.loads(cursor or "{}").get("last") or 0)
    except (ValueError, TypeError, AttributeError):
        return 0
