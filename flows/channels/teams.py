"""Microsoft Teams by the webhook of a Workflow ("Post to a channel when a webhook request is received").

https://support.microsoft.com/office/post-a-workflow-when-a-webhook-request-is-received-in-microsoft-teams. It takes an Adaptive
Card and gives back no id, so nothing can be edited and nothing threaded: each word is a card of its own.
"""

import re
from dataclasses import dataclass, field

from flows.channels.calls import Service
from flows.channels.contract import Outgoing, Receipt
from flows.errors import DeliveryFailed
from flows.messages.as_teams import as_teams

# an old connector answers 200 and tells in the text what went wrong behind it
_BEHIND = re.compile(rb"HTTP error (\d{3})")


@dataclass(frozen=True)
class Teams:
    """The address of the webhook, which is a secret."""

    name: str
    address: str = field(repr=False)
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """One card."""
        service = Service(f"channel {self.name!r} (teams)", timeout_seconds=self.timeout_seconds)
        answer = service.ask("POST", self.address, body=as_teams(outgoing.message))
        if behind := _BEHIND.search(answer.content[:2000]):
            raise DeliveryFailed(f"{service.who} did not take the message (status {int(behind[1])} behind it)")
        return Receipt(self.name, "a card carries no picture" if outgoing.chart else "")
