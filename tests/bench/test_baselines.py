"""Each baseline keeps to the rule it was published with: small series whose answer is worked out by hand beside them."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import ruptures
from cases import Case
from systems.otava import groups
from systems.pelt import change_points
from systems.registry import SYSTEMS
from systems.samples import samples

from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.pull import pull
from flows.store import open_store
from flows.verbs.check import run_checks

RUNS = Path(__file__).parents[2] / "data" / "runs"
LOSS, NORM = "train/loss", "grad/norm/total"
DROPS, ENTROPY, EVAL = "moe/drop_fraction", "train/router/routing_entropy_mean", "eval/paloma/macro_loss"
SPEED, MFU, SKIPPED = "throughput/tokens_per_second", "throughput/mfu", "optim/skipped_step"
# BLOOM-176B, 12 April 2022, iterations 31214 to 31222 of its public log
BLOOM_NORM = [0.24, 0.95, 2.39, 15.9, 145, 960, 353, 379, 650]
BLOOM_LOSS = [2.199, 2.220, 2.595, 2.242, 2.345, 5.098, 3.49, 3.21, 2.80]


@pytest.fixture
def told(tmp_path):
    """(step, onset, metric, severity, kind) of every alarm of a system on columns of one row a step."""

    def told(system, columns, *, steps=None, seconds=60.0, events=()):
        size = len(next(iter(columns.values())))
        steps = range(size) if steps is None else steps
        path = tmp_path / "log.jsonl"
        with path.open("w") as file:
            for step, row in zip(steps, pl.DataFrame(columns).iter_rows(named=True), strict=True):
                kept = {name: value for name, value in row.items() if value is not None}
                file.write(json.dumps({"global_step": step, **kept}) + "\n")
        case = Case("made", "scenario", "tuning", path, (), tuple(events), seconds)
        return [(a.step, a.onset, a.metric, a.severity, a.kind) for a in SYSTEMS[system](case)]

    return told


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """The recorded run with a restart, some of its columns."""
    path = tmp_path_factory.mktemp("run") / "lr_hot_resume.parquet"
    kept = ["global_step", "_timestamp", LOSS, NORM, DROPS, MFU, "optim/learning_rate"]
    pl.read_parquet(RUNS / path.name, columns=kept).write_parquet(path)
    return Case("lr_hot_resume", "recorded", "tuning", path, ())


def steps_of(alarms, kind=None):
    return [step for step, _, _, _, what in alarms if kind in (None, what)]


def swing(size, low=1.0, high=3.0):
    """low, high, low, ...: over an even number of samples the mean is the middle and sigma half the distance."""
    return [low, high] * (size // 2)


def test_baselines_read_what_the_judge_reads(resumed):
    (source,) = open_sources(str(resumed.log))
    store = open_store(":memory:", clock=lambda: 0.0)
    run = pull(store, source, role_of, final=True).run
    judged = store.unjudged(run, 1 << 62).rows.sort("attempt", "step", maintain_order=True)
    read = samples(resumed)
    columns = ["attempt", "step", "name", "value", "role", "unit"]
    assert read.select(columns).equals(judged.select(columns))
    assert read["attempt"].unique().to_list() == [0, 1]


# OLMo-core: > mean + 6 sigma of the 128 before. 1, 3, 1, ... has mean 2 and sigma 1, so the limit is 8.


def test_olmo_speaks_above_its_limit_and_not_at_it(told):
    assert told("olmo_core", {LOSS: [*swing(128), 8.0, 2.0]}) == []
    assert told("olmo_core", {LOSS: [*swing(128), 8.01, 2.0]}) == [(128, 128, LOSS, 2, "spike")]


def test_olmo_waits_for_128_values_and_looks_up_only(told):
    assert told("olmo_core", {LOSS: [*swing(126), 1.0, 100.0]}) == []
    assert told("olmo_core", {LOSS: [*swing(128), -100.0]}) == []


def test_olmo_tells_a_stretch_of_spikes_once(told):
    # the outliers enter the window: 100 makes the limit of the next 2.8 + 6 * 8.7 = 55, and 100 is above it again
    assert steps_of(told("olmo_core", {LOSS: [*swing(128), 100.0, 100.0, 2.0, 2.0]})) == [128]


def test_olmo_keeps_its_window_over_a_restart_without_the_abandoned_steps(told):
    # 140 steps, then back to 128: the window of the new attempt is steps 0 to 127, not the 9s that were given up
    first, second = [*swing(128), *[2.0] * 12], [8.01, *[2.0] * 12]
    steps = [*range(140), *range(128, 141)]
    assert steps_of(told("olmo_core", {LOSS: first + second}, steps=steps)) == [128]
    assert steps_of(told("olmo_core", {LOSS: [*first, 7.99, *[2.0] * 12]}, steps=steps)) == []


@pytest.mark.parametrize(("width", "step"), [(0.04, 31215), (0.12, 31216)])
def test_olmo_sees_bloom_in_the_gradient_norm_one_or_two_steps_in(told, width, step):
    # before: norms around 0.24. Sigma 0.04: limit 0.24 + 6 * 0.04 = 0.48 < 0.95. Sigma 0.12: limit 0.96, so 0.95 is borne
    # and enters; then the limit is 0.25 + 6 * 0.135 = 1.06 < 2.39
    before = swing(128, 0.24 - width, 0.24 + width)
    steps = range(31214 - 128, 31223)
    # 353 and 379 lie below the limit that 960 made (about 560); 650 is above 14.7 + 6 * 96.2 = 592 again
    assert steps_of(told("olmo_core", {NORM: before + BLOOM_NORM}, steps=steps)) == [step, 31222]


# llm-foundry: five losses in a row of at least twice the mean of the 100 before.


def test_llm_foundry_is_silent_on_bloom(told):
    # 5.098 is more than 2 * 2.2, 3.49 is not: one outlier
    assert told("llm_foundry", {LOSS: [2.2] * 128 + BLOOM_LOSS}) == []


@pytest.mark.parametrize(("outliers", "steps"), [(4, []), (5, [104]), (12, [104])])
def test_llm_foundry_bears_four_outliers(told, outliers, steps):
    # limit 2 * 2 = 4, and 0.06 more with every 5 that enters the window
    found = told("llm_foundry", {LOSS: [2.0] * 100 + [5.0] * outliers + [2.0] * 20})
    assert steps_of(found, "spike") == steps


def test_llm_foundry_counts_twice_the_mean_itself_and_begins_anew_after_a_lesser_loss(told):
    exact = [4.0, 4.04, 4.0808, 4.122416, 4.16486432]  # 2 * the mean of the window with those before in it
    assert steps_of(told("llm_foundry", {LOSS: [2.0] * 100 + [x + 1e-9 for x in exact]})) == [104]
    assert told("llm_foundry", {LOSS: [2.0] * 100 + [3.999, *exact[1:]]}) == []
    assert told("llm_foundry", {LOSS: [2.0] * 100 + [5, 5, 5, 5, 2, 5, 5, 5, 5]}) == []


@pytest.mark.parametrize(("first", "steps"), [(199, []), (200, [204])])
def test_llm_foundry_has_a_window_of_a_twentieth_of_the_run(told, first, steps):
    # 4,000 losses: the window of 200 is full from the loss 200 on, so of the five from 199 on four are judged
    loss = np.full(4000, 2.0)
    loss[first : first + 5] = 5.0
    assert steps_of(told("llm_foundry", {LOSS: loss})) == steps


def test_llm_foundry_begins_with_an_empty_window_after_a_restart(told):
    loss = [2.0] * 150 + [2.0] * 50 + [5.0] * 10
    assert told("llm_foundry", {LOSS: loss}, steps=[*range(150), *range(120, 180)]) == []
    assert steps_of(told("llm_foundry", {LOSS: loss})) == [204]


def test_llm_foundry_caps_the_loss_at_the_highest_of_the_first_window(told):
    # cap 3; 3.5 from 150 on. Before 199 lie 49 of them in the window, before 200 there are 50 of 100
    assert told("llm_foundry", {LOSS: [3.0] * 150 + [3.5] * 100}) == [(200, 200, LOSS, 3, "level")]
    # and at 10 where the first window is higher: 11 all along speaks at twice the window, batch 200
    assert told("llm_foundry", {LOSS: [11.0] * 250}) == [(199, 199, LOSS, 3, "level")]


# W&B: more than 3 sigma from the 30 before, once in 24 hours. 1, 3, ... : 2 +- 3.


def test_wandb_speaks_above_three_sigma_on_both_sides(told):
    assert told("wandb_zscore", {LOSS: [*swing(30), 5.0]}) == []
    assert told("wandb_zscore", {LOSS: [*swing(30), 5.01]}) == [(30, 30, LOSS, 2, "spike")]
    assert told("wandb_zscore", {LOSS: [*swing(30), -1.01]}) == [(30, 30, LOSS, 2, "spike")]
    assert told("wandb_zscore", {LOSS: [*swing(28), 1.0, 50.0]}) == []


def test_wandb_fires_once_a_day(told):
    hours = np.array(swing(120))
    hours[[30, 53, 60]] = 100.0  # 23 and 30 hours after the first; the window of the last holds two of them:
    # mean 8.5, sigma 24.5, limit 82
    assert steps_of(told("wandb_zscore", {LOSS: hours}, seconds=3600.0)) == [30, 60]


def test_statistical_rules_leave_schedules_and_counters_alone(told):
    odd = [*swing(128), 1e6]
    for system in ("wandb_zscore", "three_sigma", "pelt", "otava"):
        assert told(system, {"optim/learning_rate": odd, "throughput/total_tokens": odd, "run_progress": odd}) == []


# Three sigma: 100 before, sample sigma sqrt(100 / 99) = 1.00504, so 2 +- 3.0151.


def test_three_sigma_limits(told):
    assert told("three_sigma", {LOSS: [*swing(100), 5.015]}) == []
    assert told("three_sigma", {LOSS: [*swing(100), 5.016, 5.5, 2.0]}) == [(100, 100, LOSS, 2, "spike")]
    assert told("three_sigma", {LOSS: [*swing(100), -1.016]}) == [(100, 100, LOSS, 2, "spike")]
    assert told("three_sigma", {LOSS: [*swing(98), 1.0, 50.0]}) == []
    assert told("three_sigma", {LOSS: [2.0] * 100 + [50.0]}) == []


# PELT and Otava


@pytest.mark.parametrize("seed", range(5))
def test_kernel_and_plain_pelt_have_one_optimum(seed):
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(150) + np.repeat(rng.normal(0, 2, 5), 30)
    scaled = ((value - value.mean()) / value.std()).reshape(-1, 1)
    plain = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(scaled).predict(pen=3 * np.log(150))
    assert change_points(value) == plain[:-1] != []


def test_pelt_tells_a_change_once_at_the_next_run(told):
    # runs at 50, 75, ...; the one at 125 is the first with both levels: gain 125 > 3 log 125 = 14.5
    assert told("pelt", {LOSS: [1.0] * 100 + [2.0] * 500}) == [(124, 100, LOSS, 2, "level")]
    assert told("pelt", {LOSS: [1.0] * 100 + [2.0] * 24}) == []
    assert change_points(np.array([1.0] * 50)) == []
    assert change_points(np.array([1.0] * 30 + [5.0] * 2 + [1.0] * 30)) == [30, 32]  # two samples are a segment


def test_pelt_never_sees_what_is_not_finite(told):
    loss = [1.0] * 100 + [float("nan"), float("inf")] + [2.0] * 100
    assert told("pelt", {LOSS: loss}) == [(126, 102, LOSS, 2, "level")]


def test_otava_groups_the_metrics_that_change_together():
    level = np.array([1.0, 1.1] * 50 + [2.0, 2.1] * 50)
    found = groups({"a": level, "b": -level, "c": np.array([1.0, 1.1] * 100)})
    assert [(g.index, [c.metric for c in g.changes]) for g in found] == [(100, ["a", "b"])]


def test_otava_tells_a_change_once_at_the_next_run(told):
    # runs at 50, 150, 250 ...: the second is the first with both levels
    level = [1.0, 1.1] * 30 + [2.0, 2.1] * 170
    assert told("otava", {LOSS: level, NORM: [0.3, 0.31] * 200}) == [(149, 60, LOSS, 2, "level")]
    assert told("otava", {LOSS: level[:140]}) == []


# Marin at one row a minute: the row of minute m is read by the evaluation of minute m + 1; a check that is true from
# minute t on alerts at t + 5, when row t + 4 is the newest.


def test_marin_alerts_on_a_gradient_norm_above_two_after_five_minutes(told):
    calm = [0.3] * 100
    assert told("marin", {NORM: calm + [2.0] * 20}) == []
    # true from 101 on
    assert told("marin", {NORM: calm + [2.01] * 20}) == [(105, 105, NORM, 3, "level")]
    assert told("marin", {NORM: calm + [2.01] * 5 + [0.3] * 20}) == []  # true from 101 to 105: pending for four
    assert steps_of(told("marin", {NORM: calm + ([2.01] * 10 + [0.3] * 10) * 2})) == [105, 125]
    # a row each 20 s: row 100 is of second 2,000, first read at 2,040; the alert at 2,340 has read row 116
    assert steps_of(told("marin", {NORM: calm + [2.01] * 30}, seconds=20.0)) == [116]


def test_marin_pages_for_a_loss_that_goes_on_rising(told):
    # five rows from 100 on are above the band at 105. What has left the five minutes widens the band, but 2 ** d outruns it: mean
    # and 6 sigma of d such rows among 55 are 0.02 and 0.47 of it
    loss = [2.0] * 100 + [2.0 + 2.0**k for k in range(20)]
    assert told("marin", {LOSS: loss}) == [(109, 109, LOSS, 3, "spike")]
    assert told("marin", {LOSS: loss[:109]}) == []


@pytest.mark.parametrize(("rise", "step"), [(0.051, 109), (0.049, 110)])
def test_marin_pages_for_a_twentieth_of_a_nat_or_more_and_after_20_samples(told, rise, step):
    # as above, but the first floor is about the least rise of 0.05; the second is twice that
    loss = [2.0] * 100 + [2.0 + rise * 2.0**k for k in range(20)]
    assert steps_of(told("marin", {LOSS: loss})) == [step]
    assert told("marin", {LOSS: loss[90:]}) == []


def test_marin_takes_a_step_of_more_than_one_for_a_jump(told):
    # above the band at 105 and 106. At 107 two of the 55 before are high: 1.5 < 1.5 * (0.036 + 6 * 0.19), so the band has it no
    # more and the floors differ by 1.5: a jump, which alerts at 112. A step of 0.9 is neither for five minutes.
    assert told("marin", {LOSS: [2.0] * 100 + [3.5] * 20}) == [(111, 111, LOSS, 3, "level")]
    assert told("marin", {LOSS: [2.0] * 100 + [2.9] * 20}) == []


def test_marin_pages_for_two_losses_that_are_not_finite(told):
    nan = float("nan")
    # in the five minutes from 101 to 106; a single one is there for five evaluations, one too few
    assert told("marin", {LOSS: [2.0] * 100 + [nan, nan] + [2.0] * 20}) == [(105, 105, LOSS, 3, "nonfinite")]
    assert told("marin", {LOSS: [2.0] * 100 + [nan] + [2.0] * 20}) == []


@pytest.mark.parametrize(("minutes", "steps"), [(15, []), (16, [100]), (19, [100]), (20, [100, 100])])
def test_marin_pages_for_a_silence_of_more_than_ten_minutes_and_five(told, minutes, steps):
    # row 100 is older than 10 min from minute 111 on, alert at 116 if no row was written before; no progress for 15 min
    # from 115 on, alert at 120
    rows = [*range(101), *range(100 + minutes, 140)]
    assert steps_of(told("marin", {LOSS: [2.0] * len(rows)}, steps=rows), "stall") == steps


def test_marin_reads_the_logs_own_clock_for_a_pause_longer_than_its_steps(tmp_path):
    path = tmp_path / "log.jsonl"
    times = [*np.arange(100) * 0.04, *(1200 + np.arange(100) * 0.04)]  # 20 min between steps 99 and 100
    rows = ({"global_step": k, "_timestamp": 1.79e9 + t, LOSS: 2.0} for k, t in enumerate(times))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scaled = Case("made", "scenario", "tuning", path, (), (), 17.0)
    own = Case("made", "scenario", "tuning", path, ())
    assert [(a.step, a.kind) for a in SYSTEMS["marin"](scaled)] == [(99, "stall")]
    assert [(a.step, a.kind) for a in SYSTEMS["marin"](own)] == [(99, "stall")]
    clock = samples(scaled)["seconds"].to_list()
    assert clock[99] == pytest.approx(99 * 17)
    assert clock[100] - clock[99] == pytest.approx(1200 - 99 * 0.04)


@pytest.mark.parametrize(("metric", "calm", "at", "beyond"), [(DROPS, 0.0, 0.07, 0.071), (ENTROPY, 5.95, 5.92, 5.919)])
def test_marin_announces_drops_and_entropy_in_slack(told, metric, calm, at, beyond):
    assert told("marin", {metric: [calm] * 100 + [at] * 20}) == []
    assert told("marin", {metric: [calm] * 100 + [beyond] * 20}) == [(105, 105, metric, 2, "level")]


@pytest.mark.parametrize(("metric", "calm", "slow"), [(SPEED, 2.7e6, 1.99e6), (MFU, 20.5, 14.9)])
def test_marin_announces_a_speed_that_was_low_for_most_of_15_minutes(told, metric, calm, slow):
    # 8 of 15 rows are low from minute 108 on
    assert told("marin", {metric: [calm] * 100 + [slow] * 20}) == [(112, 112, metric, 2, "level")]
    assert told("marin", {metric: [calm] * 100 + [slow] * 7 + [calm] * 20}) == []


def test_marin_counts_skipped_steps_of_15_minutes(told):
    # three from minute 103 on
    skipped = [0.0] * 100 + [1.0] * 3 + [0.0] * 20
    assert told("marin", {SKIPPED: skipped}) == [(107, 107, SKIPPED, 3, "level")]
    assert told("marin", {SKIPPED: [0.0] * 100 + [1.0] * 2 + [0.0] * 20}) == []


def test_marin_announces_an_evaluation_worse_than_the_one_before(told):
    def evals(*values):
        return [dict(zip((10, 50, 85), values, strict=True)).get(row) for row in range(100)]

    loss = [2.0] * 100
    assert told("marin", {LOSS: loss, EVAL: evals(3.0, 3.1, 3.05)}) == [(55, 55, EVAL, 2, "level")]
    # for 30 min: false from 81 on, true again from 86 on
    assert steps_of(told("marin", {LOSS: loss, EVAL: evals(3.0, 3.1, 3.2)})) == [55, 90]
    assert told("marin", {LOSS: loss, EVAL: evals(3.0, 3.0, 3.0)}) == []


def test_marin_judges_the_newest_attempt_only(told):
    # 3 skipped steps, two of them before the restart: the new attempt has one
    rows = [*range(103), *range(90, 120)]
    skipped = [0.0] * 101 + [1.0] * 2 + [1.0] + [0.0] * 29
    assert told("marin", {SKIPPED: skipped, LOSS: [2.0] * len(rows)}, steps=rows) == []


@pytest.mark.parametrize(
    ("metric", "calm", "at", "beyond", "known"),
    [
        (NORM, 0.1, 0.714, 0.715, 105),  # 0.1 * 2.0 / 0.28 = 0.7143
        (ENTROPY, 2.0, 1.99, 1.989, 105),  # 2.0 * 5.92 / 5.951 = 1.98958
        (SPEED, 1000.0, 741.0, 740.0, 112),  # 1000 * 2.0 / 2.7 = 740.7
        (MFU, 40.0, 29.3, 29.2, 112),  # 40 * 15 / 20.5 = 29.27
    ],
)
def test_marin_scaled_has_the_levels_of_the_first_hour(told, metric, calm, at, beyond, known):
    assert told("marin_scaled", {metric: [calm] * 100 + [at] * 20}) == []
    assert told("marin_scaled", {metric: [calm] * 100 + [beyond] * 20}) == [
        (known, known, metric, told_as(metric), "level")
    ]
    assert told("marin_scaled", {metric: [calm] * 40 + [beyond] * 15 + [calm] * 40}) == []  # within the hour


def told_as(metric):
    return 3 if metric == NORM else 2


# watchkeeper, and the two that must not win


def test_watchkeeper_says_what_check_says(resumed):
    (document,) = run_checks([str(resumed.log)], step_key=None, store=None, html=None)
    alarms = SYSTEMS["watchkeeper"](resumed)
    loudness = {(a.step, a.onset, a.metric): a.severity for a in alarms}
    findings = [(i, f) for i in document["incidents"] for f in i["findings"]]
    where = [(int(f["detected_step"]), int(f["onset_step"]), f["metric"]) for _, f in findings]
    assert set(loudness) == set(where)
    for incident in document["incidents"]:
        before = 0
        for level in incident["severity_history"]:
            now = int(level["severity"][1])
            if now > before:  # the incident rises with one of its findings
                assert now in [
                    loudness[at]
                    for at, (i, _) in zip(where, findings, strict=True)
                    if i is incident and at[0] == level["step"]
                ]
            before = now
    # and no finding is louder than the detector or the incident has it
    for at, (incident, finding) in zip(where, findings, strict=True):
        most = max(int(e["severity"][1]) for e in incident["severity_history"])
        assert loudness[at] <= most, finding["metric"]
    assert [a.step for a in alarms] == sorted(a.step for a in alarms)
    assert max(a.severity for a in alarms) >= 2
    assert all(a.patterns for a in alarms)


@pytest.mark.parametrize(("recorded", "loud"), [(1000, False), (1500, True)])
def test_watchkeeper_knows_an_event_from_the_step_at_which_it_was_recorded(told, recorded, loud):
    rng = np.random.default_rng(0)
    loss = 2.0 + 0.01 * rng.standard_normal(2000)
    loss[1000:] += 0.1
    event = {"kind": "data_mix", "step": 1000, "recorded_at_step": recorded, "note": "phase 2"}
    alarms = told("watchkeeper", {LOSS: loss}, events=[event])
    early = [severity for step, *_, severity, _ in alarms if step < 1100]
    assert early
    assert (max(early) >= 2) == loud


def test_everything_answers_any_stretch_of_eight_steps_with_every_metric(told):
    columns = {LOSS: [2.0] * 200, NORM: [0.3] * 200, "optim/learning_rate": [1e-3] * 200}
    alarms = told("everything", columns)
    assert {step for step, *_ in alarms} == set(range(0, 200, 8))
    assert {metric for _, _, metric, *_ in alarms} == set(columns)
    assert len({kind for *_, kind in alarms}) == 10
    assert {severity for *_, severity, _ in alarms} == {3}
    assert told("nothing", columns) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_reads_an_all_nan_loss_and_a_single_row(told, system):
    nan = float("nan")
    assert steps_of(told(system, {LOSS: [nan] * 150, NORM: [nan] * 150})) is not None
    assert len(told(system, {LOSS: [2.0]})) <= 1
