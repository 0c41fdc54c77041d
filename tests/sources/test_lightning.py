"""Folders of Lightning's CSVLogger, with all that lies beside its metrics.csv."""

from pathlib import Path

import pytest

from flows.sources.catalogue import open_sources

# as CSVLogger writes it: columns in the order of their names, training and validation in rows of their own
METRICS = """epoch,step,train_loss_epoch,train_loss_step,val_loss
,9,,2.5,
,19,,2.25,
0,19,,,2.4
0,19,2.375,,
,29,,nan,
"""
ROWS = [
    (9.0, "train_loss_step", 2.5),
    (19.0, "train_loss_step", 2.25),
    (19.0, "epoch", 0.0),
    (19.0, "val_loss", 2.4),
    (19.0, "epoch", 0.0),
    (19.0, "train_loss_epoch", 2.375),
]
HPARAMS = "lr: 0.1\nbetas: [0.9, 0.999]\nlayers: 4\n"


def version(folder: Path, number: int, metrics: str = METRICS) -> Path:
    place = folder / f"version_{number}"
    (place / "checkpoints").mkdir(parents=True)
    (place / "checkpoints" / "epoch=0-step=20.ckpt").write_bytes(b"PK\x03\x04weights")
    (place / "hparams.yaml").write_text(HPARAMS)
    (place / "metrics.csv").write_text(metrics)
    return place


def read(target: Path) -> dict[str, list[tuple[float, str, float]]]:
    return {
        source.describe().run: [
            row for batch in source.pull(None) for row in batch.rows.select("step", "name", "value").iter_rows()
        ]
        for source in open_sources(str(target))
    }


@pytest.mark.parametrize("named", ["lightning_logs/version_0", "lightning_logs", "."])
def test_each_folder_that_people_name_gives_the_run(named: str, tmp_path: Path) -> None:
    version(tmp_path / "lightning_logs", 0)
    found = read(tmp_path / named)
    assert list(found) == ["version_0"]
    assert found["version_0"][:6] == ROWS
    assert found["version_0"][6][:2] == (29.0, "train_loss_step")  # NaN stays
    assert len(found["version_0"]) == 7


def test_several_versions_are_runs_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        version(tmp_path, number)
    version(tmp_path, 11, metrics="")  # has not logged yet
    assert list(read(tmp_path)) == ["version_2", "version_9", "version_10"]
    assert [each.describe().run for each in open_sources(str(tmp_path), run="x")] == [
        "x/version_2",
        "x/version_9",
        "x/version_10",
    ]


def test_hparams_without_metrics_are_refused(tmp_path: Path) -> None:
    (version(tmp_path, 0) / "metrics.csv").unlink()
    with pytest.raises(Exception, match=r"no log that can be read \(hparams.yaml"):
        open_sources(str(tmp_path / "version_0"))
