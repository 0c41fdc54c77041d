"""The user's own SQL checks: asked once a pass, told run by run."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial

from flows.playbook import load_playbook
from flows.sections import RunSection
from flows.stages import checks
from flows.stages.judge import tell
from flows.stages.past import Answers
from flows.stages.runstate import RunState
from flows.store import Store
from flows.wiring.house import LEASE_SECONDS, House, announcing, send
from flows.wiring.terms import check_of


def ask_checks(house: House, store: Store) -> None:
    """The user's own SQL, once a pass, when every run is judged: it may compare runs."""
    answered: dict[str, list[checks.Row]] = {}
    for section in house.config.check:
        rows = house.report.attempt(
            f"check {section.label}", "ask", partial(checks.ask, store, check_of(section)), house.call
        )
        if rows is not None:
            answered[section.label] = rows
    for name, (run, fresh) in house.judged.items():
        if house.config.check or checks.is_waiting(RunState.load(store.run_state(name))):
            _tell_checks(house, store, run, name, answered, fresh)


def _tell_checks(
    house: House, store: Store, run: RunSection, name: str, answered: Mapping[str, Sequence[checks.Row]], fresh: bool
) -> None:
    owner = f"run {run.label}"
    mine = [each.label for each in house.config.check if fnmatchcase(name, each.run)]
    rows = {label: [row for row in answered[label] if row.run == name] for label in mine if label in answered}

    def find(state: RunState) -> Answers:
        return checks.news(rows, mine, state, store.attempts(name), store.metrics(name), fresh=fresh)

    def chain() -> None:
        with store.lease(name, "watch", LEASE_SECONDS) as lease:
            work = partial(
                tell, store, name, find, load_playbook, clock=house.clock, announce=announcing(house, store, run, name)
            )
            told = house.report.attempt(owner, "checks", work, house.call)
            if told is not None and told.transitions:
                house.report.changes += told.transitions
                send(house, store, owner, name, lease)

    house.report.attempt(f"checks of {name}", "lease", chain)
