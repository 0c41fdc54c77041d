"""What is trained: the first runs, the ladder, every provoked fault with its healthy twin, and the benign twins.

A recipe is a list of launches. Each launch after the first starts from the checkpoint of an earlier one with its own
settings: that is how a fault comes in, as in practice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shape import Shape

ADAM_SHARE = 0.2  # the Adam leaves move at this share of the rate by which the constant-norm leaves turn


@dataclass(frozen=True)
class Launch:
    """One start of the trainer: from which checkpoint to which step, with which settings."""

    first: int
    stop: int
    peak_learning_rate: float = 0.01
    warmup: int = 200
    horizon: int = 3600
    final_share: float = 0.05
    decay_from: float = 0.0  # the share of the horizon up to which the rate stays at its peak
    schedule_start: int = 0  # the step that the schedule takes for its first
    capacity_factor: float = 1.25
    balance_rate: float = 2e-3  # how far the router bias moves per step towards the emptier experts
    z_loss: float = 1e-4
    weight_decay: float = 0.0  # of the Adam leaves, times their rate
    undecayed: tuple[str, ...] = ()  # Adam leaves that the decay leaves out
    on_sphere: bool = True  # False: the constant-norm leaves are no longer put back to their norm
    adam_leaves: tuple[str, ...] = ()  # constant-norm leaves that go to the Adam group
    batch: int = 8
    loader: str = "shuffled"  # or neighbours (a batch is one place of the text), or shard (the same few batches)
    prose: float = 0.0  # the share of sequences that are English prose
    poisoned: tuple[int, int] = (0, 0)  # steps in which half of the sequences are one line, repeated
    label_noise: float = 0.0  # the share of targets that are another, random token
    half_precision: bool = False  # gradients in float16, with a loss scale that doubles and is not checked
    forgets: tuple[str, ...] = ()  # of mean, square, bias: what the restore leaves at zero
    hang: float = 0.0  # seconds without a step before the launch, as after a hang of the one before
    contended: tuple[int, int] = (0, 0)  # steps beside which another process works on the same core
    contention: float = 0.0  # the share of the core that the other process asks for
    pause_every: int = 0  # a checkpoint is written inside the step, synchronously
    evaluates_inside: bool = False  # the evaluation counts into the duration of its step

    def learning_rate(self, step: int) -> float:
        """Linear warmup, a plateau if any, then linear decay to a share of the peak."""
        step -= self.schedule_start
        if step < self.warmup:
            return self.peak_learning_rate * (step + 1) / self.warmup
        start = max(self.warmup, self.decay_from * self.horizon)
        left = min(1.0, max(0.0, (self.horizon - step) / (self.horizon - start)))
        return self.peak_learning_rate * (self.final_share + (1 - self.final_share) * left)


@dataclass(frozen=True)
class Recipe:
    """A run from start to end. `events` are what its people knew beforehand: kind, step, note."""

    seed: int
    launches: tuple[Launch, ...]
    shape: Shape = field(default_factory=Shape)
    eval_every: int = 100
    norms_every: int = 10
    data_seed: int = 8435  # the same batch at the same step in all recipes of one seed, so that runs can be paired
    events: tuple[Mapping[str, str | int], ...] = ()
    twin: str = ""  # the healthy recipe of the same weights and data
    fault: str = ""  # what is wrong with it; "" in a healthy or benign one
    onset: int = 0  # the first step that the cause touched
    why: str = field(default="", compare=False)  # the cause in one sentence, for the card

    def sequences(self, step: int) -> int:
        """How many sequences the weights had seen before a step."""
        ends = [launch.first for launch in self.launches[1:]] + [step]
        spans = zip(self.launches, ends, strict=True)
        return sum(launch.batch * max(0, min(step, end) - launch.first) for launch, end in spans)


RUNS = {
    "healthy": Recipe(1, (Launch(0, 3600),)),
    # The run was to be extended to twice its length: the horizon doubled, and the peak slipped a decimal place.
    "lr_hot_resume": Recipe(2, (Launch(0, 1800), Launch(1700, 3600, peak_learning_rate=0.1, horizon=7200))),
    # A smaller expert buffer to save memory: less room than a perfectly balanced batch needs.
    "capacity_cut": Recipe(3, (Launch(0, 2000), Launch(2000, 3600, capacity_factor=0.9))),
    # The balance rate was to be halved, and lost its sign: the fuller an expert, the more it is preferred.
    "router_collapse": Recipe(4, (Launch(0, 1800), Launch(1800, 3600, balance_rate=-1e-3))),
}

# The proving ground. Seeds that are odd serve for tuning, even ones are held out; each half has its own onset.
END = 2400
SMALL = Shape(context=64)
BASE = Launch(0, END, horizon=END, weight_decay=0.1)
# The output layer under Adam, held by a strong z-loss, cooled down to nothing: here a missing z-loss shows.
FREE_HEAD = replace(BASE, adam_leaves=("output_proj",), final_share=0.0, z_loss=1e-2)
HALVES = {1: 1400, 2: 1000}  # seed: the step at which its faults come in


def _recipe(seed: int, *launches: Launch, **what: object) -> Recipe:
    return Recipe(seed, launches, shape=SMALL, norms_every=2, data_seed=8435 + seed, **what)  # type: ignore[arg-type]


def _resumed(base: Launch, at: int, back: int = 0, **changes: object) -> tuple[Launch, Launch]:
    """The run up to `at`, and from `back` steps earlier on with other settings."""
    return replace(base, stop=at), replace(base, first=at - back, **changes)  # type: ignore[arg-type]


# fault: (base, steps that the resume goes back, settings after it, the cause in words)
CHANGED: dict[str, tuple[Launch, int, dict[str, object], str]] = {
    "lr_too_high": (
        BASE,
        0,
        {"peak_learning_rate": 0.1},
        "resumed with a peak learning rate of 0.1 in place of 0.01, a slipped decimal place",
    ),
    "schedule_reset": (
        BASE,
        50,
        {},  # the schedule starts where the resume does, see below
        "resumed with a learning-rate schedule that starts over: warmup and peak once more",
    ),
    "optimizer_lost": (
        BASE,
        50,
        {"forgets": ("mean", "square")},
        "resumed from the weights alone: both moments of Adam start at zero, without a new bias correction",
    ),
    "data_repeated": (
        BASE,
        0,
        {"loader": "shard"},
        "resumed with a data loader that goes round one shard of 64 batches",
    ),
    "z_loss_off": (
        FREE_HEAD,
        0,
        {"z_loss": 0.0},
        "the z-loss was dropped from the settings of the cooldown; the output layer is under Adam",
    ),
    "balance_off": (
        BASE,
        0,
        {"balance_rate": 0.0, "forgets": ("bias",)},
        "resumed without the router bias, which the checkpoint did not hold, and without its update",
    ),
    "capacity_cut": (BASE, 0, {"capacity_factor": 0.9}, "the expert buffers were cut from 1.25 to 0.9 to save memory"),
    "weak_shuffle": (
        BASE,
        0,
        {"loader": "neighbours"},
        "the shuffle buffer was turned off: all sequences of a batch stem from one place of the text",
    ),
    "overflow": (
        BASE,
        0,
        {"half_precision": True},  # and stopped by somebody 500 steps later
        "gradients in float16 with a loss scale that doubles every 30 steps and is never checked for overflow",
    ),
    "decay_lost": (
        BASE,
        0,
        {"undecayed": ("stacked_blocks.1.mlp.router",)},
        "a changed name pattern took the router of layer 1 out of the weight decay",
    ),
    "constraint_lost": (
        BASE,
        0,
        {"on_sphere": False},
        "an optimizer update no longer puts the constant-norm leaves back to their norm",
    ),
    "label_noise": (BASE, 0, {"label_noise": 0.05}, "from here on 5 % of the targets are random tokens"),
}


def _faults() -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for seed, at in HALVES.items():
        for fault, (base, back, changes, why) in CHANGED.items():
            placed = {"schedule_reset": {"schedule_start": at - back}, "overflow": {"stop": at + 500}}.get(fault, {})
            twin = f"healthy_free_head-{seed}" if base is FREE_HEAD else f"healthy-{seed}"
            launches = _resumed(base, at, back, **changes | placed)
            recipes[f"{fault}-{seed}"] = _recipe(
                seed, *launches, twin=twin, fault=fault, onset=launches[1].first, why=why
            )
        recipes[f"poisoned_shard-{seed}"] = _recipe(
            seed,
            replace(BASE, poisoned=(at, at + 60)),
            twin=f"healthy-{seed}",
            fault="poisoned_shard",
            onset=at,
            why="for 60 steps half of the sequences are one line of text, repeated",
        )
        share = {1: 0.4, 2: 0.2}[seed]
        recipes[f"slow_down-{seed}"] = _recipe(
            seed,
            replace(BASE, contended=(at, END), contention=share),
            twin=f"healthy-{seed}",
            fault="slow_down",
            onset=at,
            why=f"another process asks for {share:.0%} of the core, to the end of the run",
        )
        recipes[f"hang_and_kill-{seed}"] = _recipe(
            seed,
            replace(BASE, stop=at + 90),
            replace(BASE, first=at, hang=60.0),
            twin=f"healthy-{seed}",
            fault="hang_and_kill",
            onset=at,  # the first row after the hang carries this step
            why=f"the trainer hangs for a minute after step {at + 89}, is killed, and goes on from step {at}",
        )
    return recipes


def _benign() -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for seed, at in HALVES.items():
        for name, (launches, events, why) in {
            "warmup_hump": (
                (replace(BASE, peak_learning_rate=0.03, warmup=60),),
                (),
                "a short warmup to a high peak: gradient norm and drops have a hump and come down by themselves",
            ),
            "end_of_decay": (
                (replace(BASE, decay_from=0.8, final_share=0.0),),
                ({"kind": "lr_decay", "step": int(0.8 * END), "note": "the learning rate decays from here to zero"},),
                "a constant learning rate, then a decay to zero in the last fifth: the loss falls faster",
            ),
            "batch_ramp": (
                (
                    replace(BASE, stop=at, batch=4),
                    replace(BASE, first=at, stop=at + 500, batch=8),
                    replace(BASE, first=at + 500, batch=16),
                ),
                tuple(
                    {"kind": "batch_size", "step": step, "note": f"batch {size}"}
                    for step, size in ((at, 8), (at + 500, 16))
                ),
                "the batch grows from 4 to 8 to 16 sequences, as announced",
            ),
            "data_switch": (
                _resumed(BASE, at, prose=0.5),
                ({"kind": "data_mix", "step": at, "note": "half of the data is English prose from here on"},),
                "half of the sequences are English prose from here on, as announced",
            ),
            "eval_pauses": (
                (replace(BASE, evaluates_inside=True),),
                (),
                "the evaluation every 100 steps counts into the time of its step",
            ),
            "checkpoint_pauses": (
                (replace(BASE, pause_every=150),),
                (),
                "a checkpoint every 150 steps is written inside the step, synchronously",
            ),
            "identical_replay": (
                _resumed(BASE, at + 90, back=90),
                (),
                f"killed after step {at + 89} and resumed from step {at}: the same batches, the same losses again",
            ),
        }.items():
            recipes[f"{name}-{seed}"] = _recipe(
                seed, *launches, events=events, twin=f"healthy-{seed}", onset=at, why=why
            )
    return recipes


def _healthy() -> dict[str, Recipe]:
    runs = {
        f"healthy{variant}-{seed}": _recipe(seed, base, why="nothing happens")
        for seed in HALVES
        for variant, base in (("", BASE), ("_free_head", FREE_HEAD))
    }
    # More seeds, for false alarms and for injection.
    return runs | {f"healthy-{seed}": _recipe(seed, BASE, why="nothing happens") for seed in (3, 4)}


TOKENS_PER_PARAMETER = 30
# width: (batch, the share of its schedule that the rung ran)
RUNGS = {24: (4, 1.0), 32: (6, 1.0), 48: (9, 0.81), 64: (12, 1.0)}
HERO = {96: (16, 1.0)}


def _rung(width: int, batch: int, share: float) -> Recipe:
    """One rung: tokens in proportion to the active weights, the batch weakly scaled, the rate by the hero's law."""
    shape = Shape(width=width, hidden=width, context=64)
    per_step = batch * shape.context
    tokens = TOKENS_PER_PARAMETER * shape.active_weights
    steps = round(tokens / per_step)
    # The exponents are the published ones; the constant puts width 64 at the rate of the other recipes.
    rate = 0.01 * (tokens / 2.6e6) ** -0.395 * (width / 64) ** -0.15 * (per_step / 768) ** 0.5
    launch = Launch(
        0,
        round(share * steps),
        peak_learning_rate=rate,
        warmup=max(1, round(0.05 * steps)),
        horizon=steps,
        weight_decay=0.1,
        batch=batch,
    )
    why = "" if share == 1 else f"stopped at {share:.0%} of its schedule, and left so"
    return Recipe(
        11, (launch,), shape=shape, eval_every=max(1, round(0.05 * steps)), norms_every=4, data_seed=11, why=why
    )


FAULTS = _faults() | _benign() | _healthy()
LADDER = {f"w{width}": _rung(width, *rest) for width, rest in (RUNGS | HERO).items()}
RECIPES = RUNS | LADDER | FAULTS
