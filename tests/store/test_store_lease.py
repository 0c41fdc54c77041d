import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.errors import LeaseTaken
from flows.store import open_store
from flows.store.leases import is_gone

HOLD = """
import sys
from flows.store import open_store
store = open_store(sys.argv[1], clock=lambda: 1000.0)
with store.lease("hero", "cron", ttl=60):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    return child


def test_a_lease_keeps_others_out_says_who_and_until_when_and_ends_with_its_block(store):
    with store.lease("hero", "watch", ttl=60) as lease:
        with (
            pytest.raises(LeaseTaken, match=rf"watch \(PID {os.getpid()} on .*until 2023-11-14 22:14:20 UTC"),
            store.lease("hero", "cron", 60),
        ):
            pass
        with store.lease("other", "watch", 60):
            lease.renew()
    with store.lease("hero", "cron", 60):
        pass


def test_a_living_owner_in_another_process_keeps_it_and_a_killed_one_loses_it_at_once(tmp_path):
    path = tmp_path / "s.duckdb"
    store = open_store(path, clock=lambda: 1000.0)
    owner = hold(path)
    with pytest.raises(LeaseTaken, match=rf"cron \(PID {owner.pid} "), store.lease("hero", "watch", 60):
        pass
    owner.kill()
    owner.wait()
    with store.lease("hero", "watch", 60) as lease:
        assert lease.owner == "watch"


def test_a_lease_that_ran_out_is_taken_over_and_its_old_owner_is_told(tmp_path):
    now = [1000.0]
    store = open_store(tmp_path / "s.duckdb", clock=lambda: now[0])
    with store.lease("hero", "slow", ttl=60) as slow:
        now[0] = 1061.0
        with store.lease("hero", "next", ttl=60), pytest.raises(LeaseTaken, match="the lease of slow ran out"):
            slow.renew()
    with store.lease("hero", "third", ttl=60):
        pass


def test_a_lease_is_prolonged_by_its_full_time_once_half_of_it_is_over(tmp_path):
    now = [1000.0]
    store = open_store(tmp_path / "s.duckdb", clock=lambda: now[0])
    with store.lease("hero", "watch", ttl=60) as lease:
        ends = []
        for now[0] in (1029.0, 1031.0, 1060.0, 1062.0):
            lease.renew()
            ends.append((lease.expires_at.minute * 60 + lease.expires_at.second) - 16 * 60)
    # 1,000 s after 1970-01-01 is 00:16:40
    assert ends == [100, 131, 131, 162]


def test_a_reused_process_number_is_not_the_old_process():
    assert not is_gone(os.getpid(), "")
    assert is_gone(os.getpid(), "1")
