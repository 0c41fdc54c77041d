"""Answers of every detector to the samples that are new in a pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from detectors import stopped
from detectors.finding import Answer, Finding, NotChecked, Recovery
from detectors.noise import CHUNK
from detectors.schedule import restarted
from detectors.series import Array
from detectors.silence import due_seconds, pace, silent_since
from detectors.suite import JOINT, load_joint
from detectors.window import LOOKBACK
from flows.records import Attempt
from flows.stages.joint import Key, Line, judge_evals
from flows.stages.memory import Memory
from flows.stages.metric import arrays, judge_metric, seed
from flows.stages.runstate import RunState
from flows.store import Store


@dataclass
class Answers:
    """New answers by attempt, and the memories (metric, attempt) that they came from."""

    new: dict[int, list[Finding | Recovery]] = field(default_factory=dict)
    memories: dict[tuple[str, int], Memory] = field(default_factory=dict)

    def say(self, attempt: int, answers: Sequence[Answer]) -> None:
        """Add what is not merely unchecked."""
        told = [a for a in answers if not isinstance(a, NotChecked)]
        if told:
            self.new.setdefault(attempt, []).extend(told)


def collect(
    store: Store, run: str, rows: pl.DataFrame, attempts: Sequence[Attempt], state: RunState, heard_until: float | None
) -> Answers:
    """Judge the rows, attempt by attempt; `state` goes on. `heard_until` (unix seconds) lets silence be judged."""
    out = Answers()
    parts: dict[Key, pl.DataFrame] = {
        (int(key[0]), str(key[1])): part
        for key, part in rows.partition_by("attempt", "name", as_dict=True, maintain_order=True).items()
    }
    metrics = {r["name"]: (r["role"], r["group_name"]) for r in store.metrics(run).iter_rows(named=True)}
    by_number = {each.attempt: each for each in attempts}
    for attempt in sorted({key[0] for key in parts}):
        names = [name for a, name in parts if a == attempt]
        memories = _memories(store, run, attempt, names, metrics, attempts, out)
        remembered: dict[Key, Line] = {
            (attempt, name): (m.step, m.value) for name, m in memories.items() if metrics[name][0] == "loss"
        }
        blocks = {}
        for name in names:
            role, group = metrics[name]
            said, done = judge_metric(memories[name], parts[attempt, name], name=name, role=role, group=group)
            out.say(attempt, said)
            out.memories[name, attempt] = memories[name]
            if group and len(done):
                blocks[name] = done
        each = by_number[attempt]
        out.say(attempt, _evals(store, run, parts, remembered, metrics, each, state))
        if blocks:
            out.say(attempt, _joint(blocks, metrics, each, state))
        mine = state.joint.setdefault(str(attempt), {})
        whole = {name: parts[attempt, name]["step"].to_numpy() for name in names if not metrics[name][1]}
        said, mine["stopped"] = stopped.scan(
            whole, {n: role for n, (role, _) in metrics.items()}, mine.get("stopped", {})
        )
        out.say(attempt, said)
        if attempt not in state.begun:
            state.begun.append(attempt)
            if each.parent is not None:
                rates = [name for name in names if metrics[name][0] == "learning_rate"]
                out.say(attempt, _restarted(each, _parents(store, run, each, names, out), rates, parts))
    _listen(parts, metrics, out.memories, state, heard_until, out)
    return out


def _memories(
    store: Store,
    run: str,
    attempt: int,
    names: Sequence[str],
    metrics: Mapping[str, tuple[str, str]],
    attempts: Sequence[Attempt],
    out: Answers,
) -> dict[str, Memory]:
    """The memories of the metrics, those new to an attempt seeded from its parent."""
    stored = store.judge_states(run, names)
    have = {name: Memory.load(stored[name, attempt]) for name in names if (name, attempt) in stored}
    missing = [name for name in names if name not in have]
    parent = next((a.parent for a in attempts if a.attempt == attempt), None)
    if parent is None or not missing:
        return {**have, **{name: Memory() for name in missing}}
    tails = store.lineage_tails(run, attempt, LOOKBACK + CHUNK, missing)
    for name in missing:
        older = out.memories.get((name, parent))
        if older is None and (name, parent) in stored:
            older = Memory.load(stored[name, parent])
        role, group = metrics[name]
        have[name] = seed(older, tails.filter(pl.col("name") == name), name=name, role=role, group=group)
    return have


def _evals(
    store: Store,
    run: str,
    parts: Mapping[Key, pl.DataFrame],
    remembered: dict[Key, Line],
    metrics: Mapping[str, tuple[str, str]],
    attempt: Attempt,
    state: RunState,
) -> list[Answer]:
    """Overfitting; train losses without new rows are looked up, since evaluations may arrive later than they."""
    roles = {name: role for name, (role, group) in metrics.items() if not group}
    mine = state.evals.get(str(attempt.attempt))
    if mine is None:
        parent = state.evals.get(str(attempt.parent), {})
        mine = {
            name: {
                "state": {k: v for k, v in each["state"].items() if k in ("best", "best_step", "best_train", "count")}
            }
            for name, each in parent.items()
            if each.get("state", {}).get("best_step") is not None and each["state"]["best_step"] < attempt.first_step
        }
    waits = any(roles.get(name) == "eval_loss" for a, name in parts if a == attempt.attempt)
    if waits or any(each.get("waiting") for each in mine.values()):
        absent = [n for n, r in roles.items() if r == "loss" and (attempt.attempt, n) not in remembered]
        for (name, number), data in store.judge_states(run, absent).items() if absent else ():
            if number == attempt.attempt:
                memory = Memory.load(data)
                remembered[number, name] = (memory.step, memory.value)
        said = judge_evals(parts, remembered, roles, attempt.attempt, mine)
    else:
        said = []
    state.evals[str(attempt.attempt)] = mine
    return said


def _joint(
    blocks: Mapping[str, Array], metrics: Mapping[str, tuple[str, str]], attempt: Attempt, state: RunState
) -> list[Answer]:
    """Detectors across metrics; a new attempt goes on with what its parent knew."""
    mine = state.joint.setdefault(str(attempt.attempt), {})
    parents = state.joint.get(str(attempt.parent), {})
    said: list[Answer] = []
    for detector, roles in JOINT.items():
        new = {name: rows for name, rows in blocks.items() if metrics[name][0] in roles}
        if not new:
            continue
        module = load_joint(detector)
        if detector not in mine and detector in parents:
            mine[detector] = module.carry(parents[detector], attempt.first_step)
        found, mine[detector] = module.scan(new, metrics, mine.get(detector, {}))
        said += found
    return said


def _rewind(attempt: Attempt, reached: float) -> list[Answer]:
    """That a run went back is worth a line (S0). It is known when the run has been at `reached`, its highest step so far:
    a step below that would claim that it was known before it happened.
    """
    episode = f"attempt:{attempt.attempt}"
    evidence = {"attempt": attempt.attempt, "parent": attempt.parent, "reached": reached}
    found = Finding(
        "lineage", 1, "rewind", "", "other", "none", attempt.first_step, reached, reached - attempt.first_step, "steps", 0,
        episode, evidence,
    )  # fmt: skip
    return [found, Recovery("lineage", "", episode, reached)]


def _parents(store: Store, run: str, attempt: Attempt, names: Sequence[str], out: Answers) -> dict[str, Memory]:
    """What is remembered of the same metrics in the attempt before."""
    if attempt.parent is None:
        return {}
    stored = store.judge_states(run, names)
    found = {name: out.memories.get((name, attempt.parent)) or stored.get((name, attempt.parent)) for name in names}
    return {name: each if isinstance(each, Memory) else Memory.load(each) for name, each in found.items() if each}


def _restarted(
    attempt: Attempt, parents: Mapping[str, Memory], rates: Sequence[str], parts: Mapping[Key, pl.DataFrame]
) -> list[Answer]:
    """What a new attempt shows at once: that it went back, and a learning rate other than its parent's at the same steps."""
    reached = max((float(m.step[-1]) for m in parents.values() if len(m.step)), default=attempt.first_step)
    said = _rewind(attempt, max(reached, attempt.first_step))
    for name in rates:
        if name in parents:
            step, value, _ = arrays(parts[attempt.attempt, name])
            said += restarted(parents[name].step, parents[name].value, step, value, name)
    return said


def _listen(
    parts: Mapping[Key, pl.DataFrame],
    metrics: Mapping[str, tuple[str, str]],
    memories: Mapping[tuple[str, int], Memory],
    state: RunState,
    heard_until: float | None,
    out: Answers,
) -> None:
    """Silence: the newest log line of the run against now; the next line ends it."""
    newest = state.clock
    for (name, attempt), memory in memories.items():
        if (
            len(memory.seconds)
            and np.isfinite(memory.seconds[-1])
            and (newest is None or memory.seconds[-1] > newest["at"])
        ):
            usual = pace(memory.seconds)
            if usual is not None and metrics[name][0] in ("loss", "grad_norm", "throughput", "step_time"):
                newest = {
                    "at": float(memory.seconds[-1]),
                    "usual": usual,
                    "due": due_seconds(memory.states.get("silence", {}).get("pauses", ()), float(memory.step[-1])),
                    "metric": name,
                    "attempt": attempt,
                    "step": float(memory.step[-1]),
                }
    state.clock = newest
    if state.silent is not None and parts:
        first = min(float(part["step"].min()) for part in parts.values())  # type: ignore[arg-type]
        out.say(
            state.silent["attempt"],
            [Recovery("silence", state.silent["metric"], state.silent["episode"], max(first, state.silent["step"]))],
        )
        state.silent = None
    if newest is None or heard_until is None or state.silent is not None:
        return
    silence = silent_since(newest["at"], newest["usual"], heard_until, newest.get("due", 0.0))
    if silence is not None:
        state.silent = {**newest, "episode": f"silent:{newest['step']:.15g}"}
        out.say(newest["attempt"], [_silence(newest, silence, metrics, state.silent["episode"])])


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
