"""Makers of findings for the tests of incidents."""

import subprocess

import pytest

from detectors.finding import Finding

DETECTORS = {"spike": "spikes", "trend": "direction", "level": "shifts", "divergence": "divergence"}
NAMES = {
    "loss": "train/loss",
    "grad_norm": "grad/norm/total",
    "eval_loss": "eval/loss",
    "token_drop": "moe/drop_fraction",
}


def make(kind="spike", role="loss", onset=10_000.0, **given):
    """A finding of a per-step metric in a long run; keywords that are no fields become evidence."""
    fields = {
        "detector": DETECTORS.get(kind, kind),
        "version": 1,
        "metric": NAMES.get(role, role),
        "direction": "up",
        "detected_step": given.pop("detected", onset),
        "magnitude": 0.3,
        "unit": "log",
        "severity": 1,
        "episode": f"{onset:g}",
    }
    fields |= {key: given.pop(key) for key in list(given) if key in fields}
    evidence = {"cadence": 1.0, "samples": onset, **given}
    return Finding(kind=kind, role=role, onset_step=onset, evidence=evidence, **fields)


@pytest.fixture
def found():
    return make


@pytest.fixture
def whole_shell_word():
    """The query of a `watchkeeper sql "..."` line as a POSIX shell would pass it on."""

    def parse(line):
        verb = "watchkeeper sql "
        assert line.startswith(verb)
        done = subprocess.run(["sh", "-c", f"printf '%s' {line.removeprefix(verb)}"], capture_output=True, check=True)
        return done.stdout.decode()

    return parse
