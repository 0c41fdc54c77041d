"""Cover and F1 of `change_points` on a folder of annotated series, and the same leave-one-series-out.

The folder holds annotations.json (series -> annotator -> places) and series/NAME.json ("values"), as in the Turing Change
Point Dataset (van den Burg and Williams, arXiv:2003.06222); nothing of it is part of the project.
Run: python tests/bench/segmentation.py FOLDER
"""

import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np

from detectors import segments

MARGIN = 5  # samples
RESOLUTIONS = (0.03, 0.05, 0.07, 0.1, 0.14, 0.2)
PLACES = (1.0, 1.5, 2.0, 2.5, 3.0)
Places = dict[str, list[int]]


def hits(truth: set[int], found: set[int]) -> int:
    """How many true places have a found one of their own within `MARGIN`."""
    left, count = set(found), 0
    for place in sorted(truth):
        near = min(left, key=lambda k: (abs(k - place), k), default=None)
        if near is not None and abs(near - place) <= MARGIN:
            left.remove(near)
            count += 1
    return count


def f1(places: Places, found: Iterable[int]) -> float:
    """Precision against all annotators together, recall as the mean over them; the start counts as a change."""
    mine = {0, *found}
    each = [{0, *one} for one in places.values()]
    precision = hits(set().union(*each), mine) / len(mine)
    recall = mean(hits(one, mine) / len(one) for one in each)
    return 2 * precision * recall / (precision + recall)


def cover(places: Places, found: Iterable[int], n: int) -> float:
    """Mean over annotators of the overlap (Jaccard) of each of their segments with the best of ours, by length."""

    def spans(changes: Iterable[int]) -> list[tuple[int, int]]:
        edges = [0, *sorted({k for k in changes if 0 < k < n}), n]
        return list(pairwise(edges))

    def overlap(a: tuple[int, int], b: tuple[int, int]) -> float:
        return max(0, min(a[1], b[1]) - max(a[0], b[0])) / (max(a[1], b[1]) - min(a[0], b[0]))

    mine = spans(found)
    return mean(
        sum((b - a) * max(overlap((a, b), own) for own in mine) for a, b in spans(one)) / n for one in places.values()
    )


def main(folder: Path) -> None:
    places = json.loads((folder / "annotations.json").read_text())
    names = sorted(places)
    default = (segments.PLACE, segments.RESOLUTION)
    grid = sorted({default, *((per, least) for per in PLACES for least in RESOLUTIONS)})
    scores = np.empty((len(grid), len(names), 2))
    for column, name in enumerate(names):
        values = np.array(json.loads((folder / "series" / f"{name}.json").read_text())["values"], dtype=float)
        scores[:, column] = [
            (cover(places[name], found, len(values)), f1(places[name], found)) for found in over(values, grid)
        ]
    table = scores.mean(axis=1)
    print("place       " + "".join(f"   {least:<10}" for least in RESOLUTIONS))
    for per in PLACES:
        cells = (table[grid.index((per, least))] for least in RESOLUTIONS)
        print(f"{per:<12}" + "".join(f"{a:.3f} {b:.3f}  " for a, b in cells))
    print("default {}: cover {:.3f} f1 {:.3f}".format(default, *table[grid.index(default)]))
    for label, rows in {
        "resolution alone": [k for k, (per, _) in enumerate(grid) if per == default[0]],
        "both constants": list(range(len(grid))),
    }.items():
        held, chosen = left_out(scores, rows)
        picked = sorted({grid[k] for k in chosen})
        print(f"leave-one-series-out, {label}: cover {held[0]:.3f} f1 {held[1]:.3f}; chosen {picked}")


def over(values: np.ndarray, grid: list[tuple[float, float]]) -> Iterable[list[int]]:
    """The changes under each pair of constants; the search is common to all."""
    seen = np.flatnonzero(np.isfinite(values))
    found = segments.candidates(segments.standard(segments.without_outliers(values[seen])))
    before = (segments.PLACE, segments.RESOLUTION)
    for segments.PLACE, segments.RESOLUTION in grid:
        yield [int(seen[k]) for k in segments.shortest(found)]
    segments.PLACE, segments.RESOLUTION = before


def left_out(scores: np.ndarray, rows: list[int]) -> tuple[np.ndarray, list[int]]:
    """Mean score of each series under the constants that are best on all others, and which those are."""
    total = scores.sum(axis=2)
    chosen = []
    for column in range(scores.shape[1]):
        others = np.delete(total, column, axis=1).mean(axis=1)
        chosen.append(max(rows, key=lambda k, others=others: others[k]))
    return np.array([scores[k, column] for column, k in enumerate(chosen)]).mean(axis=0), chosen


if __name__ == "__main__":
    main(Path(sys.argv[1]))
