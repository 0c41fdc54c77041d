"""Which column is the step: `_step`, then `global_step`, then `step`, then what other trainers call it."""

from collections.abc import Iterable

FIRST = ("_step", "global_step", "step")
# compared in lower case with dashes and blanks as underscores
OTHERS = (
    "global_step", "step", "trainer/global_step", "train/global_step", "iteration", "iter", "iterations", "it",
    "train_step", "training_step", "train/step", "train/iteration", "steps", "step_num", "num_steps", "num_updates",
    "update", "trainer/step",
)  # fmt: skip


def choose_step_key(names: Iterable[str], wanted: str | None = None) -> str | None:
    """The step column among `names`, or None. With `wanted` only that one counts."""
    known = dict.fromkeys(names)
    if wanted is not None:
        return wanted if wanted in known else None
    for name in FIRST:
        if name in known:
            return name
    plain = {_plain(name): name for name in reversed(list(known))}
    return next((plain[other] for other in OTHERS if other in plain), None)


def counts_steps(key: str) -> bool:
    """Whether a step column counts optimizer steps, not tokens, samples, epochs or rows."""
    return key in FIRST or _plain(key) in OTHERS


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
