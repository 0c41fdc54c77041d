"""The signed link by which a phone acknowledges. It is made when a message leaves, and stands in no store."""

from collections.abc import Collection

from flows.channels.threads import FIRING
from flows.links import ACK, signed
from flows.messages.blocks import Link, Message
from flows.phoning import PhoneSection
from flows.stages.notify import Linking


def linking(phone: PhoneSection | None, channels: Collection[str]) -> Linking | None:
    """For messages to `channels` about an incident that goes on; None where nobody could reach the address.

    Raises BadConfig, SecretUnavailable where a block of Prefect does not give the secret.
    """
    if phone is None or not phone.url or not channels:
        return None
    secret = phone.text_of("secret")

    def link(channel: str, message: Message, now: float) -> Link | None:
        about = message.thread in message.incidents and message.thread not in message.over
        if channel not in channels or message.transition not in FIRING or not about:
            return None
        where = signed(phone.url, secret, ACK, message.thread, now + phone.valid)
        return Link("I have it in hand", where)

    return link
