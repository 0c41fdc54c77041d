"""No process of ours connects to anything beyond loopback; and the guard that says so is really there."""

import subprocess
import sys
from typing import Any

import pytest

REACH_OUT = """
import socket
line = socket.socket()
line.settimeout(0.2)
try:
    line.connect(("192.0.2.1", 9))  # a documentation address: nobody has it
except OSError:
    pass
"""


def test_the_guard_sees_a_connection_that_leaves_the_machine(folder: Any) -> None:
    subprocess.run([sys.executable, "-c", REACH_OUT], env=folder.environment, check=True, timeout=60)
    assert folder.outside().startswith("socket.connect ('192.0.2.1', 9)")


@pytest.mark.parametrize("arguments", [("check", "a.jsonl"), ("init", "a.jsonl"), ("doctor",)], ids=lambda a: a[0])
def test_a_command_talks_to_nobody(folder: Any, write_log: Any, arguments: tuple[str, ...]) -> None:
    write_log(folder.path / "a.jsonl", 0, 50)
    if arguments[0] == "doctor":
        folder.configure('[[run]]\nsource = "a.jsonl"\n[[channel]]\nname = "c"\nurl = "json://192.0.2.1/"\n')
    assert folder.run(*arguments).returncode == 0
    assert folder.outside() == ""
