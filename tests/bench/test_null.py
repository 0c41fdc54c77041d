"""Generated runs in which nothing happens: their noise is what it says it is."""

import null
import numpy as np
import pytest
from score import is_healthy

from flows.sources.roles import role_of


@pytest.mark.parametrize(("phi", "degrees"), [(0.0, None), (0.5, None), (0.9, None), (0.0, 4)])
def test_noise_has_the_asked_autocorrelation_and_scale(phi, degrees):
    x = null.noise(np.random.default_rng(1), 200_000, phi, degrees)
    assert np.corrcoef(x[1:], x[:-1])[0, 1] == pytest.approx(phi, abs=0.02)
    assert x.std() == pytest.approx(np.sqrt(degrees / (degrees - 2)) if degrees else 1, rel=0.05)


def test_the_core_roles_are_logged_and_their_metrics_are_coupled():
    frame = null.run(3)
    names = frame.columns[2:]
    assert len(names) == null.METRICS
    assert {role_of(n).role for n in names} == {
        "loss", "grad_norm", "mfu", "step_time", "token_drop", "router_entropy", "param_norm", "learning_rate",
    }  # fmt: skip
    assert frame["throughput/mfu"].to_numpy() * frame["throughput/duration"].to_numpy() == pytest.approx(80)
    hard = np.diff(np.log(frame["train/loss"].to_numpy()))
    assert np.corrcoef(hard, np.diff(np.log(frame["grad/norm/total"].to_numpy())))[0, 1] > 0.1


def test_both_halves_see_every_flavour():
    flavours = {half: {null.flavour_of(seed) for seed in range(1, 13) if seed % 2 == half} for half in (0, 1)}
    assert flavours[0] == flavours[1] == set(null.FLAVOURS)


def test_a_null_run_is_a_case_without_a_truth_and_always_the_same(tmp_path):
    case = null.write(2, tmp_path, 500)
    assert (case.family, case.half, case.truths) == ("null", "held_out", ())
    assert is_healthy(case.truths)
    assert null.run(2, 500).equals(null.run(2, 500))
    assert not null.run(2, 500).equals(null.run(4, 500))
