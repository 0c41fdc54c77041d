"""The process that loads W&B's SDK: a path and a first step as JSON on standard input, JSON lines on standard output."""

import json
import sys


def main() -> None:
    """First what the run is, then its rows, then `end`; or one line with `error`."""
    path, first = json.load(sys.stdin)
    try:
        import wandb

        run = wandb.Api(timeout=60).run(path)
        _say({"state": run.state, "created": run.created_at, "last_step": run.lastHistoryStep})
        for row in run.scan_history(min_step=first):
            _say(row)
        _say({"end": True})
    except Exception as error:
        text = str(error).lower()
        login = type(error).__name__ in {"UsageError", "AuthenticationError"}
        final = "could not find" in text or "not found" in text or "404" in text
        _say({"error": type(error).__name__, "login": login, "final": final})
        raise SystemExit(1) from error


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
