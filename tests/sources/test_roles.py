"""Names of metrics as twelve trainers write them, and what they mean."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.errors import BadConfig
from flows.sources.roles import HEALTHY, ROLES, role_of
from flows.sources.scales import mfu_is_percent, sentinels

NAMES = {
    "loss": """
        train/loss train/cross_entropy_loss train_cross_entropy_loss loss lm_loss reduced_train_loss
        train_loss train/ctc_loss trl loss_metrics/global_avg_loss loss/train/total learning/loss Loss/train
        metrics/train/LanguageCrossEntropy
    """,
    "grad_norm": """
        grad/norm/total grad/norm/stacked_blocks.3.attn.w_q grad_norm grad-norm norm grad_2.0_norm_total
        learning/grad_norm train/grad_norm
    """,
    "param_norm": """
        params/norm/total params/norm/token_embed params-norm l2_norm/param/head
    """,
    "update_norm": """
        updates/norm/total updates/norm/embed optim/pre_clip_update_norm
    """,
    "learning_rate": """
        optim/learning_rate optim/adam_lr learning_rate learning-rate lr lr-AdamW lr-AdamW/pg1
    """,
    "mfu": """
        throughput/mfu mfu mfu(%) throughput/device/MFU
    """,
    "throughput": """
        throughput/tokens_per_second tokens_per_sec model_tflops_per_gpu throughput(tps) throughput tps
        tflops throughput/device/TPS
    """,
    "step_time": """
        throughput/duration throughput/iteration_time iteration-time iteration_time
        time_metrics/end_to_end(s) perf/step_time_seconds
    """,
    "data_wait": """
        throughput/loading_time time_metrics/data_loading(s)
    """,
    "tokens": """
        throughput/total_tokens consumed_tokens n_tokens_seen num_input_tokens_seen
    """,
    "token_drop": """
        moe/drop_fraction moe/sender_drop_fraction moe/receiver_drop_fraction
        train/router/layer_3/capacity_overflow_rate
    """,
    "router_entropy": """
        train/router/routing_entropy_mean train/router/layer_11/routing_entropy router_entropy
    """,
    "router_load": """
        moe/layer0/expert3_load
    """,
    "router_bias": """
        train/router/bias_min train/router/bias_max
    """,
    "router_logit": """
        train/router/router_z_loss train/router/layer_3/router_z_loss
    """,
    "max_logit": """
        max_attention_logit attn/max_logit/layer_3
    """,
    "eval_loss": """
        eval/loss eval/paloma/macro_loss eval/paloma/c4_en/bpb eval_dropless/paloma/macro_loss eval_loss
        eval_en_loss val_loss validation/loss test/loss validation/ctc_loss validation_metrics/loss val/loss
        tel
    """,
    "eval_score": """
        eval_accuracy validation/accuracy test/bleu validation/wer val_acc lm_eval/hellaswag/acc_norm eval
    """,
    "batch_size": """
        batch-size global_batch_size
    """,
    "memory": """
        memory/in_use_gib memory/max_active(GiB) mem-allocated-bytes
    """,
    "clipped": """
        clipped optim/clip_update/did_clip
    """,
    "skipped_steps": """
        optim/skipped_step
    """,
    "checkpoint": """
        checkpoint/last_step ckpt/step train/last_checkpoint_step checkpoint/age_seconds ckpt_age
    """,
    "link_errors": """
        system/gpu.0.nvlinkRecoveryCount nvlink/gpu_3/replay_errors host-7/xid
    """,
    "gpu": """
        system/gpu.0.powerWatts
    """,
    "other": """
        train/accuracy train/bleu train/wer score num_zeros num-zeros validation/num_examples total_duration
        accumulated_eval_time preemption_count load_balancing_loss train/router/load_balancing_loss
        train/load_balancing_loss mtp_1_loss ploss_3 acc_3 acc_12 z_loss summary/train_loss epoch step
        global_step eval_runtime eval_samples_per_second moe/dropped_assignments throughput/hook_time
        loss__MAX loss/max train/router/layer_1/routing_hist/mean grad/hist/total/histogram
        throughput/p50_mfu optim/skip_step/loss dropout value_loss
    """,
}
SPACED = {
    "lm loss": "loss",
    "lm loss validation": "eval_loss",
    "lm loss validation ppl": "other",
    "lm loss vs samples": "other",
    "train/CE loss": "loss",
    "train/Z loss": "other",
    "optim/total grad norm": "grad_norm",
    "optim/LR (group 0)": "learning_rate",
    "eval/lm/c4_en-validation/CE loss": "eval_loss",
    "eval/downstream/mmlu (accuracy)": "eval_score",
    "optim/step skipped": "skipped_steps",
    "train_step_timing in s": "step_time",
    "throughput/device/TPS (actual avg)": "throughput",
    "throughput/total tokens": "tokens",
}
CONTRACT = """
    loss grad_norm update_norm param_norm mfu throughput step_time token_drop router_entropy router_load
    router_bias router_logit max_logit logsumexp learning_rate eval_loss eval_score batch_size
    sequence_length tokens memory data_wait clipped skipped_steps link_errors gpu other checkpoint
"""
ALL = [(name, role) for role, names in NAMES.items() for name in names.split()] + list(SPACED.items())


@pytest.mark.parametrize(("name", "role"), ALL, ids=[name for name, _ in ALL])
def test_a_name_has_its_role(name: str, role: str) -> None:
    assert role_of(name).role == role


def test_every_role_of_the_contract_is_known_and_every_dialect_keeps_to_them() -> None:
    assert set(ROLES) == set(CONTRACT.split())
    assert all(healthy in HEALTHY for _, healthy in ROLES.values())


def test_units_directions_and_groups() -> None:
    assert (role_of("throughput/mfu").unit, role_of("mfu").unit) == ("percent", "")
    assert (role_of("elapsed_time_per_iteration_ms").unit, role_of("iteration-time").unit) == ("ms", "s")
    assert (role_of("validation/wer").healthy, role_of("validation/bleu").healthy) == ("down", "up")
    assert role_of("params/norm/stacked_blocks.3.attn.w_Q").group == "stacked_blocks.3.attn.w_Q"
    assert role_of("train/router/layer_7/routing_entropy").group == "layer_7"
    assert (role_of("params/norm/total").group, role_of("eval/loss").group) == ("", "")


@given(st.text(max_size=80))
def test_any_text_has_a_role(name: str) -> None:
    assert role_of(name).role in ROLES


def test_the_config_has_the_last_word() -> None:
    overrides = {
        "my/obj": {"role": "loss"},
        "x/*": {"role": "mfu", "unit": "percent", "healthy": "flat"},
        "lm_loss": {"unit": "bits"},
    }
    assert (role_of("my/obj", overrides).role, role_of("my/obj", overrides).healthy) == ("loss", "down")
    assert (role_of("x/y", overrides).role, role_of("x/y", overrides).unit, role_of("x/y", overrides).healthy) == (
        "mfu",
        "percent",
        "flat",
    )
    assert (role_of("lm_loss", overrides).role, role_of("lm_loss", overrides).unit) == ("loss", "bits")
    assert role_of("loss", overrides) == role_of("loss")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"role": "lose"}, "no role 'lose'"),
        ({"healthy": "sideways"}, "healthy is one of"),
        ({"rolle": "loss"}, "no field 'rolle'"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(said: dict[str, str], told: str) -> None:
    with pytest.raises(BadConfig, match=told):
        role_of("a", {"a": said})


def test_mfu_in_percent_is_told_from_a_fraction() -> None:
    assert mfu_is_percent(np.array([-100.0, -100.0, 23.1, 23.4, np.nan])) is True
    assert mfu_is_percent(np.array([0.0, 0.41, 0.42])) is False
    assert mfu_is_percent(np.array([0.9, 0.9]), unit="percent") is True
    assert mfu_is_percent(np.array([-1.0, np.nan, np.inf])) is None


def test_sentinels_are_negative_values_of_what_cannot_be_negative() -> None:
    values = np.array([-100.0, 0.0, 20.0, np.nan, -np.inf])
    assert sentinels("mfu", values).tolist() == [True, False, False, False, False]
    assert not sentinels("loss", values).any()


@pytest.mark.parametrize(
    ("name", "role", "group"),
    [
        ("perf/rank_7/step_time", "step_time", "rank_7"),
        ("step_time/host-gb200-r3-n7", "step_time", "host_gb200_r3_n7"),
        ("perf/rank_0/step_time", "step_time", ""),
        ("tokens_per_second/gpu12", "throughput", "gpu12"),
        ("throughput/device/TPS", "throughput", ""),
        ("moe/layer_3/expert_load_max", "router_load", "layer_3"),
        ("moe/layer_3/expert_7_load", "router_load", "layer_3/expert_7"),
        ("layers.11.moe/max_vio", "router_load", "layers.11"),
        ("train/router/layer_11/routing_entropy", "router_entropy", "layer_11"),
        ("moe/max_vio", "router_load", ""),
    ],
)
def test_a_layer_or_rank_that_a_name_counts_is_its_group(name, role, group):
    assert (role_of(name).role, role_of(name).group) == (role, group)


@pytest.mark.parametrize("name", ["eval/paloma/macro_loss", "eval/macro_bpb", "eval/paloma/micro_loss"])
def test_an_average_over_sets_stands_for_the_run(name):
    assert (role_of(name).role, role_of(name).group) == ("eval_loss", "")
    assert role_of("eval/paloma/c4_en/loss").group == "c4_en"
