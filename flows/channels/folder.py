"""A channel that writes each message into a folder: for tests, dry runs, and machines with no way out."""

import json
from dataclasses import dataclass
from pathlib import Path

from flows.channels.contract import Outgoing, Receipt
from flows.errors import DeliveryFailed
from flows.messages.as_html import as_html
from flows.messages.as_markdown import as_markdown
from flows.messages.as_slack import as_slack
from flows.messages.as_text import as_text
from flows.messages.blocks import to_json


@dataclass(frozen=True)
class Folder:
    """Writes <message id>.json, .md, .txt, .html, .slack.json and .png; a repeat replaces its own files."""

    name: str
    path: Path

    def send(self, outgoing: Outgoing) -> Receipt:
        """Write all files, the .json last and by rename: where it stands, the message is whole."""
        stem = outgoing.message_id.strip("<>").split("@")[0]
        envelope = {"message_id": outgoing.message_id, "thread_id": outgoing.thread_id}
        files = {
            ".md": as_markdown(outgoing.message, full=True).encode(),
            ".txt": as_text(outgoing.message, full=True).encode(),
            ".html": as_html(outgoing.message, images=False).encode(),
            ".slack.json": json.dumps(as_slack(outgoing.message), indent=1, ensure_ascii=False).encode(),
            **({".png": outgoing.chart} if outgoing.chart else {}),
            ".json": json.dumps({**envelope, "message": json.loads(to_json(outgoing.message))}, indent=1).encode(),
        }
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for ending, content in files.items():
                written = self.path / f".{stem}{ending}.part"
                written.write_bytes(content)
                written.replace(self.path / f"{stem}{ending}")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DeliveryFailed(
                f"channel {self.name!r} could not write to its folder: {reason}; make the folder writable or free space"
            ) from error
        return Receipt(self.name)
