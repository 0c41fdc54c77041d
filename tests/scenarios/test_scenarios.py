"""What is generated holds the published numbers, the same seed gives the same bytes, and the truths fit the files."""

from pathlib import Path

import bloom
import curves
import hero
import hero_levels
import marin_8b
import marin_32b
import marin_moe
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from cases import Case
from scenario import Figure, Published
from scenarios import SCENARIOS, SKIPPED, write, write_healthy

from flows.playbook import load_playbook
from flows.sources.catalogue import open_sources
from flows.sources.roles import ROLES, role_of
from flows.stages.attempts import Tracker, assign

SEED = 11
KINDS = {"spike", "level", "divergence", "nonfinite", "trend", "variance", "schedule", "invariant", "stall", "rewind"}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("scenarios")
    return {name: write(name, folder, SEED) for name in SCENARIOS}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("healthy")
    return {name: write_healthy(name, folder, SEED) for name in SCENARIOS}


def log_of(case: Case) -> pl.DataFrame:
    return pl.read_parquet(case.log)


def restarts(log: pl.DataFrame) -> list[tuple[int, int]]:
    """(step before, step after) wherever the log goes back."""
    steps = log["_step"].to_numpy()
    back = np.flatnonzero(np.diff(steps) < 0)
    return [(int(steps[at]), int(steps[at + 1])) for at in back]


def pauses(log: pl.DataFrame, seconds: float) -> list[int]:
    """Steps after which the log is silent for longer."""
    gaps = np.diff(log["_timestamp"].to_numpy())
    return [int(step) for step in log["_step"].to_numpy()[:-1][gaps > seconds]]


def scatter(log: pl.DataFrame, name: str) -> float:
    """Relative noise between neighbours, indifferent to trends and to a few spikes."""
    step = np.diff(np.log(log[name].to_numpy()))
    return float(1.4826 * np.median(np.abs(step - np.median(step))) / np.sqrt(2))


def level(log: pl.DataFrame, name: str, first: float, stop: float) -> float:
    return float(log.filter(pl.col("_step").is_between(first, stop - 1))[name].median())


# -- every scenario ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_truths_and_events_fit_the_log(name: str, cases: dict[str, Case]) -> None:
    case, log = cases[name], log_of(cases[name])
    first, last = log["_step"].min(), log["_step"].max()
    patterns = {pattern.name for pattern in load_playbook()}
    roles = {role_of(column).role for column in log.columns}
    assert case.truths
    for truth in case.truths:
        assert first <= truth.onset <= truth.visible <= truth.end <= last
        assert truth.kind in KINDS
        assert truth.roles <= set(ROLES)
        assert truth.roles & roles, "no metric of the log could answer it"
        assert set(truth.patterns) <= patterns
        assert 0 <= truth.severity <= 4
    for event in case.events:
        assert set(event) - {"end_step"} == {"kind", "step", "recorded_at_step", "note"}
        assert event["step"] <= event.get("end_step", last) <= last
        assert event["recorded_at_step"] <= event["step"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_file_says_that_it_is_generated_and_can_be_read_with_its_times(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    about = pq.read_metadata(case.log).metadata
    assert about[b"generated"] == b"true"
    assert about[b"source"].decode() == SCENARIOS[name].source
    assert case.log.name.startswith("generated-")
    (source,) = open_sources(str(case.log))
    rows = pl.concat([batch.rows for batch in source.pull(None)])
    assert source.describe().step_key == "_step"
    assert rows["logged_at"].null_count() == 0
    assert rows["logged_at"].is_sorted()
    assert rows.filter(pl.col("value").is_nan()).height == int(
        log_of(case).select(pl.col(pl.Float64).is_nan().sum()).sum_horizontal()[0]
    )


@pytest.mark.parametrize("name", ["hero-hang-81759", "moe-repeated-nan", "bloom-cascade"])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    name: str, cases: dict[str, Case], tmp_path: Path
) -> None:
    again = write(name, tmp_path, SEED)
    assert again.log.read_bytes() == cases[name].log.read_bytes()
    other = write(name, tmp_path, SEED + 1)
    assert other.log.read_bytes() != again.log.read_bytes()
    assert other.truths == again.truths


def test_the_half_is_handed_through(tmp_path: Path) -> None:
    assert write("bloom-cascade", tmp_path, 0, half="tuning").half == "tuning"
    assert write_healthy("bloom-cascade", tmp_path, 0).family == "scenario"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_healthy_twin_has_nothing_in_it(name: str, healthy: dict[str, Case]) -> None:
    case, log = healthy[name], log_of(healthy[name])
    assert (case.truths, case.events) == ((), ())
    assert restarts(log) == []
    assert pauses(log, 900) == []
    assert not log.select(pl.col(pl.Float64).is_nan().any()).transpose().to_series().any()


def test_every_incident_is_replayed_or_skipped_with_its_reason() -> None:
    told = " ".join([each.source for each in SCENARIOS.values()] + list(SKIPPED))
    missing = [
        number for number in range(1, 29) if f"incident {number}:" not in told and f"incident {number}" not in SKIPPED
    ]
    assert missing == []


def test_the_readme_names_every_scenario() -> None:
    text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    assert [name for name in [*SCENARIOS, *SKIPPED] if name not in text] == []


def test_every_figure_says_where_it_comes_from() -> None:
    tables = [each.figures for each in SCENARIOS.values()]
    tables += [hero.RUN, hero.POOLED, hero.RAGGED, marin_moe.RUN, bloom.RUN]
    for table in tables:
        for value in vars(table).values():
            for figure in value if isinstance(value, list) else [value]:
                assert isinstance(figure, Figure)
                assert figure.origin in {"published", "derived", "assumed"}
    for each in SCENARIOS.values():
        values = [x for value in vars(each.figures).values() for x in (value if isinstance(value, list) else [value])]
        assert any(isinstance(x, Published) for x in values) or each.name in {
            "8b-eval-format-cooldown",
            "hero-attn-gate-growth",
        }


# -- the hero run -----------------------------------------------------------------------------------------------------


def test_hero_noise_steps_and_cadences(healthy: dict[str, Case]) -> None:
    log = log_of(healthy["hero-mixture-108k"])
    assert scatter(log, "train/loss") == pytest.approx(0.178 / np.sqrt(11_264), rel=0.05)
    assert level(log, "throughput/duration", 102_000, 108_000) == pytest.approx(16.8, rel=0.01)
    assert level(log, "throughput/mfu", 102_000, 108_000) == pytest.approx(23.3, rel=0.01)
    assert level(log, "train/loss", 102_000, 108_000) == pytest.approx(1.2565, rel=0.01)
    norms = log.filter(pl.col("grad/norm/total").is_not_null())["_step"]
    assert (norms % 10 == 0).all()
    assert len(norms) == 1_200
    evals = log.filter(pl.col("eval_dropless/macro_loss").is_not_null())["_step"].to_list()
    assert evals == [104_999, 107_999, 110_999, 113_999]
    assert log["params/norm/output_proj"].drop_nulls().unique().to_list() == [177]


def test_gradient_norm_is_autocorrelated(healthy: dict[str, Case]) -> None:
    size = 20_000
    log_norm = curves.ar1(np.random.default_rng(SEED), size)
    assert np.corrcoef(log_norm[1:], log_norm[:-1])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert log_norm.std() == pytest.approx(0.07, rel=0.05)


def test_attention_gates_end_at_the_published_norm_and_hide_in_the_total(cases: dict[str, Case]) -> None:
    log = log_of(cases["hero-attn-gate-growth"])
    at_42k = log.filter(pl.col("_step") == 42_000)
    assert at_42k["params/norm/stacked_blocks.stacked.attn.attn_gate"][0] == pytest.approx(229.9, rel=0.005)
    total = log["params/norm/total"].drop_nulls()
    assert total.max() / total.min() < 1.0001
    assert 8 <= at_42k["params/norm/stacked_blocks.3.attn.attn_gate"][0] <= 10
    assert 1.5 <= at_42k["params/norm/stacked_blocks.42.attn.attn_gate"][0] <= 2


def test_gradient_norm_rises_twice_as_fast_after_the_switch(cases: dict[str, Case]) -> None:
    steps = np.array([58_014, 81_716, 100_000])
    at = hero_levels.rise(steps)
    assert at[[0, 2]] == pytest.approx([0.28, 0.59])
    assert (at[2] - at[1]) / (100_000 - 81_716) == pytest.approx(2 * (at[1] - at[0]) / (81_716 - 58_014))
    log = log_of(cases["hero-grad-norm-rise"])
    assert level(log, "grad/norm/total", 54_014, 58_014) == pytest.approx(0.28, rel=0.03)
    assert level(log, "grad/norm/total", 99_000, 100_010) == pytest.approx(0.585, rel=0.03)
    end = log.filter(pl.col("_step") == 100_000)
    assert (end["grad/norm/output_proj"][0] / end["grad/norm/total"][0]) ** 2 == pytest.approx(0.95)


def test_the_swap_moves_what_was_announced_and_hangs_twice(cases: dict[str, Case]) -> None:
    log = log_of(cases["hero-ragged-swap-54k"])
    assert restarts(log) == [(54_261, 54_000), (54_071, 54_000)]
    assert pauses(log, 3_000) == [54_071, 54_001]
    ragged = log.with_row_index().filter((pl.col("index") > 6_262) & (pl.col("index") < 6_333))
    assert ragged["moe/drop_fraction"].median() < 1e-4
    assert ragged["throughput/mfu"].median() == pytest.approx(23.3, rel=0.01)
    assert ragged["throughput/duration"].median() == pytest.approx(16.8, rel=0.01)
    assert level(log, "moe/drop_fraction", 48_000, 54_000) == pytest.approx(3.4e-2, rel=0.02)
    assert level(log, "throughput/mfu", 48_000, 54_000) == pytest.approx(20.5, rel=0.01)
    assert level(log, "throughput/duration", 48_000, 54_000) == pytest.approx(18.5, rel=0.01)
    # the same batches on both transports: the difference is the constant of the transport
    both = log.filter(pl.col("_step").is_between(54_000, 54_071)).group_by("_step", maintain_order=True)
    moved = both.agg(pl.col("train/loss").get(1) - pl.col("train/loss").get(0))["train/loss"]
    assert moved.median() == pytest.approx(-0.006, abs=0.0003)


@pytest.mark.parametrize(
    ("name", "back", "silent"),
    [
        ("hero-hang-81759", [(81_759, 81_716)], [81_759]),
        ("hero-fabric-fault-65069", [(65_069, 64_944)], [65_069]),
        ("hero-link-fault-83487", [], [83_487]),
        ("hero-kernel-race-hangs", [(107_501, 107_287), (108_711, 108_000)], [107_501, 108_711]),
        ("moe-rollback-58049", [(58_248, 50_000)], [58_048, 58_248]),
        ("bloom-hang-45000", [], [45_000]),
        ("bloom-layernorm-resync", [], [17_234, 20_447, 21_679]),
    ],
)
def test_rows_stop_and_go_back_where_it_is_told(
    name: str, back: list[tuple[int, int]], silent: list[int], cases: dict[str, Case]
) -> None:
    log = log_of(cases[name])
    assert restarts(log) == back
    assert pauses(log, 900) == silent


def test_the_pull_stage_sees_the_attempts_that_were_written(cases: dict[str, Case]) -> None:
    for name, first_steps in {
        "hero-fabric-fault-65069": [59_069, 64_944],
        "moe-repeated-nan": [0, 0, 0, 0],
        "hero-link-fault-83487": [77_487],
    }.items():
        (source,) = open_sources(str(cases[name].log))
        tracker = Tracker()
        for batch in source.pull(None):
            assign(batch.rows, tracker)
        assert [attempt.first_step for attempt in tracker.attempts] == first_steps


def test_a_replay_repeats_the_luck_of_its_batches(cases: dict[str, Case]) -> None:
    log = log_of(cases["hero-fabric-fault-65069"]).filter(pl.col("_step").is_between(64_944, 65_069))
    twice = log.group_by("_step", maintain_order=True).agg(
        pl.col("train/loss").first().alias("a"), pl.col("train/loss").last().alias("b")
    )
    assert np.corrcoef(twice["a"], twice["b"])[0, 1] > 0.99
    assert not (twice["a"] == twice["b"]).any()


def test_the_mixture_moves_the_training_loss_only(cases: dict[str, Case]) -> None:
    log = log_of(cases["hero-mixture-108k"])
    ratio = level(log, "train/loss", 108_000, 109_000) / level(log, "train/loss", 107_000, 108_000)
    assert ratio == pytest.approx(0.98, abs=0.001)
    evals = log["eval_dropless/macro_loss"].drop_nulls().to_numpy()
    assert np.abs(np.diff(evals) / evals[1:]).max() < 0.003
    assert cases["hero-mixture-108k"].events[0]["recorded_at_step"] < 108_000
    assert all(truth.benign for truth in cases["hero-mixture-108k"].truths)


def test_coordinated_collection_saves_its_share(cases: dict[str, Case]) -> None:
    log = log_of(cases["hero-coordinated-gc"])
    ratio = level(log, "throughput/duration", 60_000, 62_000) / level(log, "throughput/duration", 54_000, 60_000)
    assert ratio == pytest.approx(1 - 0.0246, abs=0.001)


# -- the MoE runs before it -------------------------------------------------------------------------------------------


def test_moe_explosion_at_step_0(cases: dict[str, Case], healthy: dict[str, Case]) -> None:
    output = log_of(cases["moe-step0-explosion"])["grad/norm/output_proj"]
    assert 5_000 < output[0] < 12_000
    assert 200_000 < output[1] < 450_000
    assert log_of(healthy["moe-step0-explosion"])["grad/norm/output_proj"].median() == pytest.approx(0.6, rel=0.05)


def test_moe_evaluations_shift_while_the_training_loss_goes_on(cases: dict[str, Case]) -> None:
    log = log_of(cases["moe-eval-overflow"])
    evals = log.filter(pl.col("eval/paloma/macro_loss").is_not_null())
    shift = level(evals, "eval/paloma/macro_loss", 30_000, 38_000) - level(
        evals, "eval/paloma/macro_loss", 22_000, 30_000
    )
    assert shift == pytest.approx(0.1102 - 0.03, abs=0.01)  # eight thousand steps of progress are in it
    ratio = level(log, "train/loss", 30_000, 31_000) / level(log, "train/loss", 29_000, 30_000)
    assert ratio == pytest.approx(1, abs=0.003)


def test_moe_nan_at_the_told_steps_of_four_attempts(cases: dict[str, Case]) -> None:
    log = log_of(cases["moe-repeated-nan"])
    assert log.filter(pl.col("train/loss").is_nan())["_step"].to_list() == [93, 114, 314, 952]
    assert restarts(log) == [(93, 0), (114, 0), (314, 0)]


def test_moe_bring_up_has_finite_parts_of_a_nan_total(cases: dict[str, Case]) -> None:
    log = log_of(cases["moe-bring-up-nan"])
    assert log["train/loss"][0] == 11.804
    assert log["train/loss"].is_nan().to_list() == [False, False, True]
    assert log["grad/norm/total"].is_nan().all()
    assert log["grad/norm/output_proj"].is_finite().all()
    assert log["grad/norm/final_norm.weight"].is_finite().all()
    assert (log["moe/drop_fraction"] == 0).all()


# -- the dense runs ---------------------------------------------------------------------------------------------------


def test_32b_spikes_fill_five_percent_and_the_update_leads(cases: dict[str, Case]) -> None:
    steps = np.arange(53_900, 56_400)
    loss, grad, update = marin_32b.spiky(steps, marin_32b.SPIKE_STARTS, marin_32b.SPIKES.height, marin_32b.SPIKE_TAU)
    assert (np.log(loss) > curves.loss_sigma(8_192)).sum() == pytest.approx(130, abs=5)
    first = [int(np.argmax(factor > 1)) for factor in (update, grad, loss)]
    assert first == sorted(set(first))
    log = log_of(cases["32b-frequent-spikes"])
    assert level(log, "grad/norm/total", 48_000, 53_000) == pytest.approx(0.2, rel=0.03)
    assert scatter(log, "train/loss") == pytest.approx(0.178 / np.sqrt(8_192), rel=0.05)


def test_32b_spike_leaves_an_offset(cases: dict[str, Case]) -> None:
    log = log_of(cases["32b-spike-with-offset"])
    assert level(log, "train/loss", 79_000, 80_000) == pytest.approx(1.96, abs=0.002)
    assert log.filter(pl.col("_step").is_between(80_000, 80_003))["train/loss"].max() == pytest.approx(2.02, abs=0.015)
    assert level(log, "train/loss", 80_200, 81_000) == pytest.approx(1.975, abs=0.002)


def test_32b_optimizer_swap_ends_without_bound(cases: dict[str, Case]) -> None:
    log = log_of(cases["32b-optimizer-swap"])
    assert level(log, "train/loss", 77_500, 78_500) < level(log, "train/loss", 76_000, 77_000)
    assert log["train/loss"][-1] > 2 * 1.96
    assert level(log, "optim/learning_rate", 77_200, 81_000) == 2e-3


def test_32b_warm_start_recovers_in_300_steps(cases: dict[str, Case]) -> None:
    log = log_of(cases["32b-warm-start"])
    before = level(log, "train/loss", 79_000, 80_000)
    assert level(log, "train/loss", 80_000, 80_005) > 1.1 * before
    assert level(log, "train/loss", 80_300, 80_700) == pytest.approx(before, rel=0.002)


def test_32b_shuffle_moves_only_the_training_loss(cases: dict[str, Case]) -> None:
    log = log_of(cases["32b-shuffle-shift"])
    assert level(log, "train/loss", 190_000, 193_000) / level(log, "train/loss", 187_000, 190_000) == pytest.approx(
        1.01, abs=0.001
    )
    evals = log["eval/paloma/macro_loss"].drop_nulls().to_numpy()
    assert evals.max() / evals.min() < 1.005


def test_32b_contaminated_score_ends_where_it_is_told(cases: dict[str, Case], healthy: dict[str, Case]) -> None:
    for case, end in ((cases, 0.547), (healthy, 0.691)):
        scores = log_of(case["32b-contaminated-eval"])["lm_eval/gsm8k/exact_match"].drop_nulls()
        assert scores[-1] == pytest.approx(end, abs=0.02)


def test_8b_loss_creeps_only_below_the_told_rate(cases: dict[str, Case], healthy: dict[str, Case]) -> None:
    log, calm = log_of(cases["8b-cooldown-creep"]), log_of(healthy["8b-cooldown-creep"])
    rates = log["optim/learning_rate"]
    assert rates[0] == pytest.approx(1.7e-4)
    assert rates[-1] == pytest.approx(1.7e-5)
    apart = (log["train/loss"] / calm["train/loss"] - 1).to_numpy()
    low = (rates < 3e-5).to_numpy()
    assert np.abs(apart[~low]).max() < 1e-12
    assert np.median(apart[-500:]) > 0.008
    head = log["params/norm/lm_head"].drop_nulls()
    rest = log["params/norm/transformer.layers"].drop_nulls()
    assert head[-1] / head[0] > 1.8
    assert rest.max() / rest.min() < 1.002


def test_8b_rewarm_returns_slightly_lower(cases: dict[str, Case], healthy: dict[str, Case]) -> None:
    log, calm = log_of(cases["8b-rewarm"]), log_of(healthy["8b-rewarm"])
    rates = log["optim/learning_rate"]
    assert (rates[0], rates[-1]) == pytest.approx((1.7e-4, 1.7e-3))
    assert (rates.diff() > 0).sum() == pytest.approx(2_000, abs=1)
    ratio = lambda first, stop: level(log, "train/loss", first, stop) / level(calm, "train/loss", first, stop)  # noqa: E731
    assert ratio(501_900, 502_200) > 1.03
    assert 0.995 < ratio(513_500, 514_000) < 1


def test_8b_batch_times_three_narrows_the_noise(cases: dict[str, Case]) -> None:
    log = log_of(cases["8b-batch-x3"])
    changed = int(marin_8b.OCELOT.changed)
    before, after = log.filter(pl.col("_step") < changed), log.filter(pl.col("_step") >= changed + 200)
    assert scatter(before, "train/loss") / scatter(after, "train/loss") == pytest.approx(np.sqrt(3), rel=0.05)
    assert after["optim/learning_rate"][0] == 1.7e-3
    hot = log.filter(pl.col("eval/ema/paloma/macro_loss").is_not_null())
    assert (hot["eval/ema/paloma/macro_loss"] == hot["eval/paloma/macro_loss"]).all()


def test_8b_evaluations_part(cases: dict[str, Case]) -> None:
    log = log_of(cases["8b-format-of-evals"])
    for name, up in (("c4_en", False), ("twitterAAE_HELM_fixed", True), ("4chan", True)):
        values = log[f"eval/paloma/{name}/loss"].drop_nulls()
        assert (values[12] > values[11]) is up
    rising = log_of(cases["8b-eval-format-cooldown"])
    assert rising["eval/paloma/c4_en/loss"].drop_nulls()[-1] > 1.05 * rising["eval/paloma/c4_en/loss"].drop_nulls()[0]
    scores = rising["lm_eval/averages/macro_avg_acc"].drop_nulls()
    assert scores[-1] > scores[0]


def test_150m_shuffle_drifts_away_in_the_evaluations(cases: dict[str, Case], healthy: dict[str, Case]) -> None:
    bad, good = log_of(cases["150m-weak-shuffle"]), log_of(healthy["150m-weak-shuffle"])
    assert level(bad, "train/loss", 7_900, 8_000) == pytest.approx(3.696, rel=0.003)
    assert level(good, "train/loss", 7_900, 8_000) == pytest.approx(3.693, rel=0.003)
    for name, worse in (("uncheatable_eval/macro_loss", 0.145), ("paloma/macro_loss", 0.083)):
        ends = [log[f"eval/{name}"].drop_nulls()[-1] for log in (bad, good)]
        assert ends[0] / ends[1] == pytest.approx(1 + worse, abs=0.005)


# -- BLOOM ------------------------------------------------------------------------------------------------------------


def test_bloom_cascade_to_the_digit(cases: dict[str, Case]) -> None:
    log = log_of(cases["bloom-cascade"]).filter(pl.col("_step").is_between(31_214, 31_222))
    assert log["lm-loss-training/lm loss"].to_list() == [2.199, 2.220, 2.595, 2.242, 2.345, 5.098, 3.49, 3.21, 2.80]
    assert log["grad-norm/grad-norm"].to_list() == [0.242, 0.947, 2.39, 15.9, 145, 960, 353, 379, 650]
    whole = log_of(cases["bloom-cascade"])
    before = level(whole, "lm-loss-training/lm loss", 31_000, 31_214)
    assert level(whole, "lm-loss-training/lm loss", 31_250, 31_500) == pytest.approx(before, rel=0.002)


def test_bloom_slow_gpu_to_the_digit(cases: dict[str, Case]) -> None:
    log = log_of(cases["bloom-slow-gpu"])
    assert log.filter(pl.col("_step").is_between(42_783, 42_786))["TFLOPs"].to_list() == [149.1, 147.6, 142.3, 141.1]
    assert level(log, "TFLOPs", 42_787, 44_283) == pytest.approx(141.1, rel=0.003)
    assert level(log, "TFLOPs", 36_783, 42_783) == pytest.approx(149.1, rel=0.003)
