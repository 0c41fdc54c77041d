"""Configuration -> the real store, sources, channels and clock; the only place that builds them.

A pass goes over the runs one by one, each under its lease. What fails is kept as a result and stops nothing else.
"""

from flows.wiring.one_pass import one_pass
from flows.wiring.opening import open_configured_store, open_run, utc_now
from flows.wiring.terms import check_of, terms_of, watched_bounds

__all__ = ["check_of", "one_pass", "open_configured_store", "open_run", "terms_of", "utc_now", "watched_bounds"]
