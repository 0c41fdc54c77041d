"""A program: logs one run into a file store and into a database with the real MLflow, then serves the database.

Arguments: folder, port. The folder gets `files` and `base` with the run ids.
"""

import json
import os
import sys
from pathlib import Path

FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])
DATABASE = f"sqlite:///{FOLDER}/mlflow.db"
os.environ |= {
    "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "_MLFLOW_SERVER_FILE_STORE": DATABASE,
    "_MLFLOW_SERVER_REGISTRY_STORE": DATABASE, "_MLFLOW_SERVER_ARTIFACT_ROOT": str(FOLDER / "artifacts"),
}  # fmt: skip

import mlflow  # noqa: E402
from mlflow.entities import Metric  # noqa: E402

STEPS = 300


def log(uri: str) -> str:
    """A dense metric, one with a NaN and an infinity, one on every tenth step; ten milliseconds a step."""
    client = mlflow.MlflowClient(uri)
    run = client.create_run("0", run_name="hero").info.run_id
    metrics = []
    for step in range(STEPS):
        time = 1_790_000_000_000 + 10 * step
        grad = {3: float("nan"), 4: float("-inf")}.get(step, 0.5 + step)
        metrics += [Metric("train/loss", 4 / (1 + step), time, step), Metric("grad", grad, time, step)]
        if step % 10 == 0:
            metrics.append(Metric("eval", 5.0 + step, time + 5, step))
    for start in range(0, len(metrics), 500):
        client.log_batch(run, metrics[start : start + 500])
    return run


if __name__ == "__main__":
    (FOLDER / "runs.json").write_text(json.dumps({"files": log(f"file://{FOLDER}/mlruns"), "base": log(DATABASE)}))
    from mlflow.server import app

    app.run("127.0.0.1", PORT, threaded=True)
