"""A card for each recording: what was done to it, what can be seen, and a chart with the true onset."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert
from effects import Effect, history
from recipes import Recipe

from flows.record.curves import thin

PANELS = 3  # below the loss
POINTS = 200  # buckets of a line, each with its least and its greatest value
SHOWN = 12  # rows of the table of effects
ALWAYS = ("grad/norm/total", "moe/drop_fraction", "throughput/duration")
INK, GREY, RED = "#1b2631", "#9aa5b1", "#b03a2e"


def card(name: str, recipe: Recipe, found: Sequence[Effect], label: dict[str, Any], timed: bool) -> str:
    """Markdown; `timed` says whether the log holds its step times."""
    command = f"python data/tiny_moe/train.py --recipe {name} --out data/{_folder(recipe)}/{name}.parquet"
    command += "" if timed else " --untimed"
    lines = [f"# {name}", "", f"- {'Cause' if recipe.fault else 'What happened'}: {recipe.why or 'nothing'}."]
    for truth in label["truths"]:
        lines.append(f"- True onset: step {truth['onset']}; first visible at step {truth['visible']}.")
    if recipe.twin:
        lines.append(f"- Healthy twin, the same weights and batches: [{recipe.twin}]({recipe.twin}.md).")
    lines += [
        f"- For: {label['half'].replace('_', ' ')}.",
        f"- Make it again: `{command}` (see [README](../README.md)).",
        "",
    ]
    lines += [f"![{name}]({name}.png)", ""]
    if recipe.twin:
        lines += ["Black is this run, grey its twin, red the true onset.", "", *_table(found)]
    return "\n".join(lines)


def _folder(recipe: Recipe) -> str:
    return "ladder" if recipe.seed == recipe.data_seed else "faults"


def _table(found: Sequence[Effect]) -> list[str]:
    if not found:
        return ["No metric shows an effect larger than its own spread.", ""]
    rows = [f"| `{e.metric}` | {e.before:.4g} | {e.after:.4g} | {e.size:+.1f} | {e.visible} |" for e in found[:SHOWN]]
    more = [f"And {len(found) - SHOWN} more.", ""] if len(found) > SHOWN else []
    head = ["| metric | before | after | effect in spreads | visible from |", "|---|---|---|---|---|"]
    return [*head, *rows, "", *more]


def chart(log: Path, twin: Path | None, truths: Sequence[dict[str, Any]], found: Sequence[Effect]) -> bytes:
    """PNG: the loss and the metrics with the largest effects; the twin in grey, the true onset as a red line."""
    run = history(log)
    other = history(twin) if twin is not None else None
    largest = [e.metric for e in found if e.metric not in ("train/loss", "train/cross_entropy_loss")]
    names = list(dict.fromkeys(["train/loss", *_varied(largest), *(name for name in ALWAYS if name in run.columns)]))[
        : PANELS + 1
    ]
    panels = [_panel(run, other, name, [int(t["onset"]) for t in truths]) for name in names]
    spec = alt.vconcat(*panels, spacing=4).resolve_scale(x="shared").configure_view(stroke=None)
    spec = spec.configure_axis(labelFontSize=11).configure_axisY(minExtent=52)
    return vl_convert.vegalite_to_png(spec.to_dict(), scale=1.0)


def _varied(metrics: Sequence[str]) -> list[str]:
    """The first metric of each family: thirty norms of parameters say the same."""
    families: dict[str, str] = {}
    for metric in metrics:
        families.setdefault("/".join(metric.split("/")[:2]), metric)
    return list(families.values())[:PANELS]


def _panel(run: pl.DataFrame, twin: pl.DataFrame | None, metric: str, onsets: Sequence[int]) -> alt.LayerChart:
    x = alt.X("step:Q", title=None, scale=alt.Scale(nice=False))
    logs = metric.startswith("throughput") and float(run[metric].drop_nulls().max()) > 0  # type: ignore[arg-type]
    scale = alt.Scale(type="log") if logs else alt.Scale(zero=False)
    y = alt.Y("value:Q", title=None, scale=scale)
    layers = []
    for frame, color in ((twin, GREY), (run, INK)):
        if frame is not None and metric in frame.columns:
            line = alt.Chart(alt.Data(values=_values(frame, metric))).mark_line(color=color, strokeWidth=1)
            layers.append(line.encode(x=x, y=y))
    rules = alt.Chart(alt.Data(values=[{"step": onset} for onset in onsets])).mark_rule(color=RED, strokeWidth=1.5)
    title = alt.TitleParams(metric, anchor="start", fontSize=12, color=INK)
    return alt.layer(*layers, rules.encode(x=x)).properties(width=640, height=110, title=title)


def _values(frame: pl.DataFrame, metric: str) -> list[dict[str, float]]:
    seen = frame.select(step="global_step", value=metric).drop_nulls().filter(pl.col("value").is_finite())
    step, value = seen["step"].cast(pl.Float64).to_numpy(), seen["value"].cast(pl.Float64).to_numpy()
    return seen[thin(step, value, step[0], step[-1], POINTS)].to_dicts() if len(step) else []
