"""A process that reads in a loop, for the tests of readers beside a writer."""

READ = """
import json, sys, time
from flows.store import open_store
store = open_store(sys.argv[1], clock=lambda: 0.0)
read = {
    "method": lambda: store.metrics("hero"),
    "sandbox": lambda: store.query("SELECT count(*), max(step) FROM history"),
}[sys.argv[3]]
read()  # all imports and processes are there
print("ready", flush=True)
reads, failures, longest = 0, [], 0.0
stop = time.monotonic() + float(sys.argv[2])
while time.monotonic() < stop:
    before = time.monotonic()
    try:
        read()
    except Exception as error:
        failures.append(repr(error))
    reads, longest = reads + 1, max(longest, time.monotonic() - before)
print(json.dumps([reads, failures, longest]))
"""
