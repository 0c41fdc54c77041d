"""The false discovery rate online: what is promised, and that it lasts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from detectors import fdr
from detectors.fdr import MEMORY, Q, Trial, judged, two_sided


def screened(z: np.ndarray) -> np.ndarray:
    """p-values as they come: detectors are silent below some size, and silence is p = 1."""
    p = 2 * stats.t.sf(np.abs(z), 8)
    return np.where(p < 2e-3, p, 1.0)


def test_the_reward_is_paid_out_once_at_most():
    shares = [fdr.gamma(age) for age in range(1, 200_001)]
    assert 0.4 < sum(shares) < 1
    assert all(share > 0 for share in shares)


@pytest.mark.parametrize("z", [0.0, 0.5, -2.0, 5.0, 9.85, -20.0, 40.0])
def test_tails_are_those_of_student(z):
    assert two_sided(z) == pytest.approx(2 * stats.t.sf(abs(z), 8), rel=1e-5)


def test_infinite_z_has_no_chance_at_all():
    assert two_sided(float("inf")) == pytest.approx(0, abs=1e-15)


def test_rare_anomalies_in_200_metrics_and_500_windows_stay_within_the_rate():
    shares, found, there = [], 0, 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        odd = rng.random((500, 200)) < 1 / 1000
        p = screened(rng.standard_t(8, size=odd.shape) + 20 * odd)
        verdicts, _ = judged((Trial(w, f"m{m:03}", p[w, m]) for w in range(500) for m in range(200)), {})
        rejected = np.array([v.rejected for v in verdicts]).reshape(odd.shape)
        shares.append((rejected & ~odd).sum() / max(1, rejected.sum()))
        found, there = found + (rejected & odd).sum(), there + odd.sum()
    # five runs of some 100 rejections: three standard errors of a share of 0.1 are 0.04
    assert np.mean(shares) <= Q
    assert found / there > 0.95


def test_nulls_alone_are_rejected_about_once_in_100_000():
    rng = np.random.default_rng(7)
    counts = []
    for _ in range(10):
        p = screened(rng.standard_t(8, size=100_000))
        verdicts, _ = judged((Trial(k // 60, "", each) for k, each in enumerate(p)), {})
        counts.append(sum(v.rejected for v in verdicts))
    # the floor alone spends one in 100,000: ten of them by Poisson up to 20, with the rewards of each
    assert sum(counts) <= 20


def test_power_does_not_die_of_100_000_null_tests():
    _, memory = judged((Trial(k // 60, "", 1.0) for k in range(100_000)), {})
    (verdict,), _ = judged([Trial(2000, "", 0.9 * Q / MEMORY)], memory)
    assert verdict == (True, Q / MEMORY, 100_001)


def test_a_rejection_pays_for_later_steps_only_and_fades():
    _, memory = judged([Trial(10, "a", 0.0)], {})
    floor, after = Q / MEMORY, 1e-3
    same, _ = judged([Trial(10, "b", after)], memory)
    later, _ = judged([Trial(11, "b", after)], memory)
    assert not same[0].rejected
    assert same[0].alpha == floor
    assert later[0].rejected
    assert later[0].alpha == pytest.approx(floor + Q * (1 - 1 / MEMORY) * fdr.gamma(1))
    _, memory = judged((Trial(12, "", 1.0) for _ in range(5 * MEMORY)), memory)
    late, _ = judged([Trial(13, "b", after)], memory)
    assert late[0].alpha == pytest.approx(floor, rel=0.01)


def test_the_memory_stays_small():
    _, memory = judged((Trial(k, "", 0.0) for k in range(1000)), {})
    assert memory["tests"] == 1000
    assert memory["rejected"] == [[k + 1, k] for k in range(1000 - fdr.KEPT, 1000)]


@given(p=st.lists(st.sampled_from([0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1.0]), max_size=60), cut=st.integers(0, 60))
def test_in_two_parts_or_at_once(p, cut):
    tests = [Trial(k // 3, str(k % 3), each) for k, each in enumerate(p)]
    whole = judged(tests, {"tests": 0, "rejected": []})
    first, memory = judged(tests[:cut], {"tests": 0, "rejected": []})
    second, memory = judged(tests[cut:], memory)
    assert (first + second, memory) == whole


@given(p=st.lists(st.sampled_from([0.0, 1e-6, 1e-4, 0.9]), min_size=1, max_size=80))
def test_levels_spent_are_never_more_than_the_faded_rejections_earn(p):
    verdicts, _ = judged([Trial(k, "", each) for k, each in enumerate(p)], {})
    fade = (1 - 1 / MEMORY) ** np.arange(len(p))[::-1]
    spent = float(np.sum(fade * [v.alpha for v in verdicts]))
    assert spent <= Q * (1 + float(np.sum(fade * [v.rejected for v in verdicts]))) + 1e-12
