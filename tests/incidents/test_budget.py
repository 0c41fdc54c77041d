"""An alert budget: what it says, and which severity keeps it."""

import pytest

from flows.incidents.budget import SECONDS, Reached, allowed, budget_of, counts, quietest

WEEK = SECONDS["week"]


def reached(*severities, run="hero"):
    return [Reached(run, f"i{k}", 10.0 * k, level) for k, level in enumerate(severities)]


@pytest.mark.parametrize(
    ("text", "count", "level", "span"),
    [
        ("2 pages a week", 2, 3, WEEK),
        ("at most 2 pages per week", 2, 3, WEEK),
        ("5 alerts per day", 5, 2, 86_400),
        ("1 page per 10,000 steps", 1, 3, 10_000),
        ("1 message an hour", 1, 1, 3_600),
        ("3 pages per 2 weeks", 1.5, 3, WEEK),
    ],
)
def test_a_budget_is_read_as_it_is_said(text, count, level, span):
    budget = budget_of(text)
    assert (budget.count, budget.level, budget.span) == (count, level, span)


@pytest.mark.parametrize(
    "text", ["", "lots", "2 pages", "2 pages a fortnight", "0 pages a week", "-1 pages a week", "2 cats a day"]
)
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(ValueError, match="budget"):
        budget_of(text)


def test_an_incident_counts_once_for_each_severity_that_it_reached():
    turns = [
        Reached("hero", "a", 1, 2),
        Reached("hero", "a", 2, 3),
        Reached("hero", "a", 3, 3),
        Reached("other", "a", 1, 1),
    ]
    assert counts(turns) == {1: 2, 2: 1, 3: 1, 4: 0}


def test_the_quietest_severity_that_keeps_the_budget():
    said = reached(2, 2, 2, 3, 3, 3, 4)
    assert quietest(said, budget_of("2 pages a week"), WEEK) == 4
    assert quietest(said, budget_of("2 pages a week"), 2 * WEEK) == 3
    assert quietest(said, budget_of("7 alerts a week"), WEEK) == 1
    assert quietest(reached(4, 4, 4), budget_of("2 pages a week"), WEEK) is None


def test_a_run_of_a_day_has_a_whole_weeks_budget():
    assert allowed(budget_of("2 pages a week"), 86_400) == 2
