"""The command line as a shell sees it, for tests of several suites."""

import contextlib
import io
import subprocess
import sys

import pytest

from flows.cli import main


def watchkeeper(*arguments, cwd=None):
    """What a shell would see of the command, without a process for each."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd or "."),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(sys, "argv", ["watchkeeper", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
