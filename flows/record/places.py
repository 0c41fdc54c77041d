"""Where the record stands once it is served: the address of a run, and of each incident that has a page."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256

from flows.record.veil import Policy


def folder_name(run: str) -> str:
    """A name that is safe in any file system; what had to be changed keeps its difference by a hash."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip(".-")[:80]
    return safe if safe and safe == run else f"{safe or 'run'}-{sha256(run.encode('utf-8', 'replace')).hexdigest()[:8]}"


def incident_file(identity: str) -> str:
    """The page of an incident, in the folder of its run."""
    return f"incident-{folder_name(identity)}.html"


@dataclass(frozen=True)
class Served:
    """The record under `url` ("": nowhere); what has no page of its own has no address, which is then ""."""

    url: str = ""
    policy: Policy = field(default_factory=Policy)

    def run(self, run: str) -> str:
        """The page of a run."""
        if not self.url or not self.policy.takes(run):
            return ""
        return f"{self.url.removesuffix('index.html').rstrip('/')}/{folder_name(self.policy.called(run))}/index.html"

    def incident(self, run: str, identity: str, severity: int, metrics: Collection[str]) -> str:
        """The page of an incident of that severity, whose findings are about these metrics."""
        folder = self.run(run).removesuffix("index.html")
        return f"{folder}{incident_file(identity)}" if folder and self.policy.tells(severity, metrics) else ""
