"""Of an incident that somebody calls known no baseline is learnt, however the samples were cut into passes."""

import numpy as np
import polars as pl

from detectors.noise import CHUNK
from detectors.suite import _until_a_turn, _without, advance
from flows.playbook import load_playbook
from flows.records import SAMPLE_SCHEMA, Description, Operation
from flows.sources.roles import role_of
from flows.stages.attempts import Tracker, assign
from flows.stages.judge import judge
from flows.stages.known import masked_of
from flows.store import open_store

STEPS = 1_800
WORD = 1_100  # the step at which somebody says so


def values():
    """A loss that is on another level from step 600 to 1,000."""
    noise = np.random.default_rng(7).normal(0, 0.01, STEPS)
    at = np.arange(STEPS)
    return np.where((at >= 600) & (at < 1_000), 3.0, 2.0) * np.exp(noise)


def lines(cuts, word=True):
    """(metric, kind, onset, detected) of all findings; the word is put in at WORD."""
    store, tracker = open_store(":memory:", clock=lambda: 1e9), Tracker()
    store.register_run(Description("r", "made", "test", "step"))
    rows = pl.DataFrame(
        [(float(s), None, "train/loss", float(v)) for s, v in enumerate(values())], schema=SAMPLE_SCHEMA, orient="row"
    )
    stops = sorted({*cuts, WORD + 1, STEPS})
    for first, last in zip([0, *stops], stops, strict=False):
        placed = assign(rows[first:last], tracker, final=last == STEPS)
        store.append("r", placed, tracker.attempts, "c", tracker.dump(), {}, role_of)
        judge(store, "r", load_playbook, clock=lambda: 1e9)
        if last == WORD + 1 and word:
            for row in store.incidents("r"):
                until = min(row["resolved_step"] or WORD, WORD)
                store.operate(
                    Operation(
                        "r", "known", "ana", 1e9, "", row["incident_id"], step=float(WORD), until_step=float(until),
                        severity=row["severity"], findings=1,
                    )
                )  # fmt: skip
    found = [(f["metric"], f["kind"], f["onset_step"], f["detected_step"], f["magnitude"]) for f in store.findings("r")]
    return found, masked_of(store, "r")


def test_any_cut_gives_the_same_findings():
    whole = lines(())
    assert whole[1]["train/loss"]
    assert [
        lines(cuts) for cuts in ((300, 650, 1_300), (1_101, 1_150, 1_151, 1_160, 1_408), range(1_102, 1_500, 37))
    ] == [whole] * 3


def test_what_was_said_before_the_word_stays():
    with_word, without = lines(())[0], lines((), word=False)[0]
    assert [f for f in with_word if f[3] <= WORD] == [f for f in without if f[3] <= WORD]
    assert masked_of(open_store(":memory:", clock=lambda: 0.0), "r") == {}


def test_what_was_found_after_the_word_is_none_of_what_was_known():
    class Kept:
        def log(self, run):
            return [
                Operation(run, kind, "ana", 1e9, incident_id="i", step=step, until_step=until)
                for kind, step, until in (("known", 50.0, 40.0), ("right", 90.0, None))
            ]

        def findings(self, run, incident):
            found = [("loss", 10.0, 20.0), ("mfu", 30.0, 51.0), ("loss", 45.0, 50.0), ("", 1.0, 2.0)]
            return [{"metric": name, "onset_step": onset, "detected_step": seen} for name, onset, seen in found]

    assert masked_of(Kept(), "r") == {"loss": [(10.0, 40.0, 50.0, 90.0), (45.0, 40.0, 50.0, 90.0)]}


def test_a_stretch_is_missing_in_what_a_later_chunk_looks_back_at_and_nowhere_else():
    step, value = np.arange(10.0), np.arange(10.0) + 1
    assert np.flatnonzero(np.isnan(_without([(2, 4, 5, np.inf)], step, value, 6))).tolist() == [2, 3, 4]
    assert _without([(2, 4, 6, np.inf)], step, value, 6) is value  # the word came at this very step
    assert _without([(2, 4, 1, 5)], step, value, 6) is value  # and was taken back
    assert np.flatnonzero(np.isnan(_without([(2, 9, 5, np.inf)], step, value, 6))).tolist() == [2, 3, 4, 5]


def test_a_span_ends_where_a_word_comes_into_force():
    begins = np.arange(0.0, 4 * CHUNK, CHUNK)
    assert _until_a_turn(begins, [(0, 1, CHUNK, np.inf)], 4 * CHUNK) == 2 * CHUNK
    assert _until_a_turn(begins, [(0, 1, 1e9, np.inf)], 4 * CHUNK) == 4 * CHUNK


def test_the_scale_of_what_follows_is_that_of_the_quiet_part():
    """Most samples before a chunk belong to an incident that scattered: they hid the spike behind it."""
    noise = np.random.default_rng(2).normal(0, 0.01, 20 * CHUNK)
    at = np.arange(len(noise))
    wild = (at >= 6 * CHUNK) & (at < 16 * CHUNK)
    value = 2.0 * np.exp(np.where(wild, 12 * noise, noise))
    value[17 * CHUNK + 40] *= 1.15
    step, none = at.astype(float), np.full(len(at), np.nan)

    def spikes(masked):
        said, _, _ = advance(step, value, none, 0, 0, {}, name="loss", role="loss", masked=masked)
        return [
            a.magnitude for _, a in said if a.detector == "spikes" and getattr(a, "onset_step", 0) == 17 * CHUNK + 40
        ]

    word = (float(6 * CHUNK), float(16 * CHUNK - 1), float(16 * CHUNK + 5), np.inf)
    assert not spikes(()) and spikes([word])
