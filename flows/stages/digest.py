"""The digest of a channel: which small incidents it has not been told of, and whether their time has come.

The log holds a line a digest, written in one transaction with its message: nothing is told twice, and none is lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flows.incidents.people import JUDGE
from flows.messages.digest import compose_digest
from flows.records import Operation
from flows.stages.announce import Takes, delivery, document_of
from flows.stages.document import last_step
from flows.stages.judge import stored
from flows.store import Store

WORDS = frozenset({"opened", "reopened", "escalated", "resolved"})


@dataclass(frozen=True)
class Digest:
    """What a channel collects: incidents that it `takes`, told after `seconds` or after `steps` of the run."""

    channel: str
    takes: Takes
    seconds: float | None = None
    steps: float | None = None


def tell_digests(store: Store, run: str, digests: Sequence[Digest], *, clock: Callable[[], float]) -> int:
    """Put the digests that are due into the outbox; returns how many."""
    if not digests:
        return 0
    log, step, now = store.log(run), last_step(store, run), clock()
    due = 0
    for each in digests:
        news = _news(each, log)
        if not news or not _is_due(each, log, news[0], step, now):
            continue
        names = {line.incident_id for line in news if line.incident_id}
        wanted = [document_of(one) for one in stored(store, run, names) if each.takes(one)]
        if not wanted:
            continue
        row = delivery(run, each.channel, compose_digest(run, wanted), now, news[-1].turn)
        store.save_told(run, [row], (), [Operation(run, "digest", JUDGE, now, each.channel, step=step)])
        due += 1
    return due


def _last(digest: Digest, log: Sequence[Operation]) -> Operation | None:
    return next((each for each in reversed(log) if each.kind == "digest" and each.why == digest.channel), None)


def _news(digest: Digest, log: Sequence[Operation]) -> list[Operation]:
    """What was said of incidents since the last digest of the channel, and was not silenced."""
    last = _last(digest, log)
    turn = 0 if last is None else last.turn
    return [each for each in log if each.turn > turn and each.kind in WORDS and not each.silent]


def _is_due(digest: Digest, log: Sequence[Operation], first: Operation, step: float, now: float) -> bool:
    """Counted from the last digest; from the first thing to tell where there was none."""
    since = _last(digest, log) or first
    if digest.seconds is not None:
        return now - since.at >= digest.seconds
    assert digest.steps is not None
    return step - (since.step or 0.0) >= digest.steps
