"""Silence of a run: between its newest log line and now, which only a live watch knows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from detectors.finding import Finding, Pending, Recovery
from detectors.silence import due_seconds, pace, patience
from flows.stages.crowd import Roles
from flows.stages.memory import Memory
from flows.stages.past import Answers
from flows.stages.runstate import RunState

_PACED = ("loss", "grad_norm", "throughput", "step_time")  # roles that are logged at every step
SHOWN = 0.5  # of the silence that is one: from then on it is pending


def listen(rows: pl.DataFrame, metrics: Roles, state: RunState, heard_until: float | None, out: Answers) -> None:
    """The newest log line of the run against now (`heard_until`, unix seconds; None: it is not asked); the next ends it."""
    if len(rows):
        _heard_again(rows, state, out)
    newest = state.clock
    lines = {key: (memory.step, memory.seconds) for key, memory in out.memories.items()}
    for attempt, crowd in out.crowds.items():
        # all leaves of a step have one time: the newest speaks for them
        names = [name for name in crowd.names if metrics[name][0] in _PACED]
        at = crowd.rows(names)
        if len(at):
            k = int(at[np.argmax(np.nan_to_num(crowd.last.seconds[at, -1], nan=-np.inf))])
            lines[crowd.names[k], attempt] = (crowd.last.step[k], crowd.last.seconds[k])
    for (name, attempt), (step, seconds) in lines.items():
        if len(seconds) and np.isfinite(seconds[-1]) and (newest is None or seconds[-1] > newest["at"]):
            usual = pace(seconds)
            if usual is not None and metrics[name][0] in _PACED:
                newest = {
                    "at": float(seconds[-1]),
                    "usual": usual,
                    "due": due_seconds(_pauses(out.memories.get((name, attempt))), float(step[-1])),
                    "metric": name,
                    "attempt": attempt,
                    "step": float(step[-1]),
                }
    state.clock = newest
    if state.silent is not None and len(rows):
        first = float(rows["step"].to_numpy().min())
        out.say(
            state.silent["attempt"],
            [Recovery("silence", state.silent["metric"], state.silent["episode"], max(first, state.silent["step"]))],
        )
        state.silent = None
    if newest is None or heard_until is None or state.silent is not None:
        return
    silence, limit = heard_until - newest["at"], patience(newest["usual"], newest.get("due", 0.0))
    episode = f"silent:{newest['step']:.15g}"
    if silence > limit:
        state.silent = {**newest, "episode": episode}
        out.say(newest["attempt"], [_silence(newest, silence, metrics, episode)])
    elif silence > SHOWN * limit:
        out.say(newest["attempt"], [_pending(newest["metric"], episode, newest["step"], silence, limit)])


def _pending(metric: str, episode: str, step: float, silence: float, limit: float, over: str = "") -> Pending:
    return Pending("silence", metric, episode, step, step, silence, limit, "no sample of", "seconds", 4, over)


def _heard_again(rows: pl.DataFrame, state: RunState, out: Answers) -> None:
    """What was pending for want of samples ends with the first one, however late it is read."""
    seconds = rows["seconds"].drop_nulls().drop_nans()
    for each in state.pending:
        if each.what.detector == "silence":
            was, at = each.what, None if state.clock is None else state.clock["at"]
            gap = float(seconds.min()) - at if len(seconds) and at is not None else was.seen  # type: ignore[arg-type]
            over = "samples come again"
            out.say(each.attempt, [_pending(was.metric, was.episode, was.onset_step, gap, was.wanted, over)])


def _pauses(memory: Memory | None) -> Sequence[Any]:
    """The regular pauses that a metric is known to make."""
    return () if memory is None else memory.states.get("silence", {}).get("pauses", ())


def _silence(
    newest: Mapping[str, Any], silence: float, metrics: Mapping[str, tuple[str, str]], episode: str
) -> Finding:
    return Finding(
        "silence",
        1,
        "stall",
        newest["metric"],
        metrics[newest["metric"]][0],
        "none",
        newest["step"],
        newest["step"],
        silence,
        "seconds",
        4,
        episode,
        {"usual_seconds": newest["usual"], "silent": True},
    )
