"""The wheel is complete: installed outside the checkout, the demo works from it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_works_from_an_installed_wheel(tmp_path):
    place = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", place, ROOT], check=True, timeout=300, env={**os.environ, "PIP_NO_INPUT": "1"})
    # the dependencies come from this environment, the two packages from the wheel alone
    code = (
        f"import sys; sys.path.insert(0, {str(place)!r})\n"
        "import flows, detectors\n"
        f"assert flows.__file__.startswith({str(place)!r}) and detectors.__file__.startswith({str(place)!r})\n"
        "sys.argv = ['watchkeeper', 'demo', '--run', 'capacity_cut', '--out', 'out']\n"
        "from flows.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "moe/drop_fraction jumped" in done.stdout
    assert (tmp_path / "out" / "capacity_cut" / "index.html").is_file()
    assert list((tmp_path / "out" / "capacity_cut").glob("*.png"))
    assert (tmp_path / "out" / "watchkeeper.duckdb").is_file()
