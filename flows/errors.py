"""One tree of errors; every leaf is permanent or transient and its message names the next step.

WatchkeeperError
├── PermanentError              retrying cannot help
│   ├── BadInput                a file or URL cannot be read as a run (exit status 2)
│   ├── BadConfig               watchkeeper.toml or an argument is wrong (exit status 2)
│   ├── BadQuery                `watchkeeper sql` refuses the statement
│   ├── StoreTooNew             the store was written by a newer watchkeeper
│   └── UndeliverableError      a channel says no for good (unknown address, revoked token)
└── TransientError              the same call may succeed later
    ├── SourceUnavailable       the tracker or file system does not answer
    ├── SecretUnavailable       the server that keeps a secret does not give it
    ├── StoreBusy               another process holds the store
    ├── StoreFull               the disk under the store has no room; the transaction was rolled back
    ├── LeaseTaken              another pass of this run is under way
    └── DeliveryFailed          a channel did not take the message this time
"""


class WatchkeeperError(Exception):
    """Root of all errors that a user may see; the message says what, where, and how to mend it."""


class PermanentError(WatchkeeperError):
    """Retrying cannot help."""


class TransientError(WatchkeeperError):
    """The same call may succeed later."""


class BadInput(PermanentError):
    """A file or URL cannot be read as a run."""


class BadConfig(PermanentError):
    """The configuration or an argument is wrong."""


class BadQuery(PermanentError):
    """The SQL sandbox refuses a statement."""


class StoreTooNew(PermanentError):
    """The store was written by a newer watchkeeper."""


class UndeliverableError(PermanentError):
    """A channel refuses the message for good."""


class SourceUnavailable(TransientError):
    """The tracker or the file system does not answer."""


class SecretUnavailable(TransientError):
    """The server that keeps a secret does not give it."""


class StoreBusy(TransientError):
    """Another process holds the store."""


class StoreFull(TransientError):
    """The disk under the store has no room; nothing was changed."""


class LeaseTaken(TransientError):
    """Another pass of this run is under way."""


class DeliveryFailed(TransientError):
    """A channel did not take the message this time."""
