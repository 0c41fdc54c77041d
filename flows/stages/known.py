"""Which samples are no baseline any more, because somebody has said that their incident is known.

From the step of that word on, and until another word on it: so it holds whenever the watch runs. What came after that
step is judged against what was there before the incident and after its end.
"""

from detectors.suite import Masked
from flows.incidents.people import FEEDBACK
from flows.store import Store


def masked_of(store: Store, run: str) -> dict[str, list[Masked]]:
    """By metric, the stretches that detectors must not learn from."""
    log = [each for each in store.log(run) if each.kind in FEEDBACK and each.step is not None]
    out: dict[str, list[Masked]] = {}
    for at, word in enumerate(log):
        if word.kind != "known" or word.step is None or word.until_step is None or word.incident_id is None:
            continue
        later = (each.step for each in log[at + 1 :] if each.incident_id == word.incident_id)
        end = next((step for step in later if step is not None), float("inf"))
        for row in store.findings(run, word.incident_id):
            if row["detected_step"] <= word.step and row["metric"]:
                out.setdefault(row["metric"], []).append((row["onset_step"], word.until_step, word.step, end))
    return out
