import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"altair", "vl_convert", "apprise", "prefect", "scipy", "statsmodels", "ruptures"}


@pytest.mark.parametrize(
    "module",
    [
        "flows.stages.notify",
        "flows.stages.publish",
        "flows.stages.announce",
        "flows.channels.catalogue",
        "flows.record.page",
    ],
)
def test_what_is_not_used_is_not_loaded(module):
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.split() == []
