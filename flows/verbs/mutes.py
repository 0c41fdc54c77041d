"""`watchkeeper incidents mute`, `unmute` and `mutes`: metrics and causes of which nobody wants to hear for a while."""

import time
from dataclasses import replace
from typing import Annotated

import typer

from flows.errors import BadConfig
from flows.records import Operation
from flows.verbs.people import ForOption, StoreOption, UntilStepOption, WhoOption, WhyOption, opened, until, who_is

MetricOption = Annotated[str, typer.Option(help="metrics by a shell pattern, such as 'val/*'")]
PatternOption = Annotated[str, typer.Option(help="a cause by its name, such as loss_spike")]
RunOption = Annotated[str, typer.Option(help="runs by a shell pattern")]


def mute(
    metric: MetricOption = "",
    pattern: PatternOption = "",
    run: RunOption = "*",
    duration: ForOption = None,
    until_step: UntilStepOption = None,
    why: WhyOption = "",
    who: WhoOption = None,
    store: StoreOption = None,
) -> None:
    """Send nothing of a metric or of a cause for a while. Its incidents are listed; what still goes on then is told.

    Example: watchkeeper incidents mute --metric "val/*" --run "ablation-*" --for 8h
    """
    _one_target(metric, pattern)
    if pattern:
        _known_pattern(pattern)
    end = until(duration, until_step, "mute")
    done = Operation(run, "mute", who_is(who), time.time(), why, metric=metric, pattern=pattern)
    done = replace(done, until_time=end, until_step=until_step)
    opened(store).operate(done)
    print(_line(done))  # noqa: T201


def unmute(
    metric: MetricOption = "",
    pattern: PatternOption = "",
    run: RunOption = "*",
    why: WhyOption = "",
    who: WhoOption = None,
    store: StoreOption = None,
) -> None:
    """End a mute before its time; name it as it was made.

    Example: watchkeeper incidents unmute --metric "val/*" --run "ablation-*"
    """
    from flows.incidents.people import mutes_in_force

    _one_target(metric, pattern)
    kept = opened(store)
    held = mutes_in_force(kept.log(), None, None, time.time())
    if not any((each.run, each.metric, each.pattern) == (run, metric, pattern) for each in held):
        raise BadConfig(
            f"unmute: no such mute of run {run!r} is in force. `watchkeeper incidents mutes` shows those that are."
        )
    done = Operation(run, "unmute", who_is(who), time.time(), why, metric=metric, pattern=pattern)
    kept.operate(done)
    print(_line(done))  # noqa: T201


def mutes(store: StoreOption = None) -> None:
    """The mutes that are in force.

    Example: watchkeeper incidents mutes
    """
    from flows.incidents.people import mutes_in_force

    held = mutes_in_force(opened(store).log(), None, None, time.time())
    print("\n".join(_line(each) for each in held) or "no mutes")  # noqa: T201


def _line(each: Operation) -> str:
    from flows.messages.document import operation_doc
    from flows.messages.facts import operation
    from flows.messages.plain import plain

    what = f"--metric {plain(each.metric, 120)!r}" if each.metric else f"--pattern {plain(each.pattern, 60)}"
    return f"{what} --run {plain(each.run, 120)!r}: {operation(operation_doc(each))}"


def _one_target(metric: str, pattern: str) -> None:
    if bool(metric) == bool(pattern):
        raise BadConfig("mute: give either --metric 'GLOB' or --pattern NAME.")


def _known_pattern(pattern: str) -> None:
    from flows.playbook import load_playbook

    names = sorted(each.name for each in load_playbook())
    if pattern not in names:
        raise BadConfig(f"--pattern {pattern!r}: the playbook has no such cause; it has {', '.join(names)}.")
