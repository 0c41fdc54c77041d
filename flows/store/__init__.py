"""The only room that speaks DuckDB: tables, cursors, judgements, the outbox, and the sandbox for users' SQL."""

from flows.store.keeping import Lease
from flows.store.library import named
from flows.store.pivot import wide
from flows.store.retention import Rule
from flows.store.samples import Appended, Unjudged
from flows.store.sandbox import Answer, Limits
from flows.store.snapshot import connect
from flows.store.store import Store, open_store
from flows.store.waiting import Waiting

__all__ = [
    "Answer", "Appended", "Lease", "Limits", "Rule", "Store", "Unjudged", "Waiting", "connect", "named", "open_store", "wide",
]  # fmt: skip
