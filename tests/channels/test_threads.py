"""Which thread a message belongs to, and what it does to a page."""

from flows.channels.contract import Outgoing, Told
from flows.channels.threads import Page, opening, page_of
from flows.messages.blocks import Message


def word(transition, *incidents, over=()):
    return Message("t", "S3", "hero", transition, incidents[0], (), incidents=incidents, over=over)


def after(*told):
    """The last of these on its way, the others taken before by a pager that was given their keys."""
    before = []
    for each in told[:-1]:
        key = page_of(Outgoing(each, "m", "t", before=tuple(before))).key
        before.append(Told(each, key, 0.0))
    return Outgoing(told[-1], "m", "t", before=tuple(before))


def test_an_incident_is_triggered_raised_and_resolved_under_its_own_id():
    life = [word("opened", "a"), word("escalated", "a"), word("still", "a"), word("resolved", "a")]
    actions = [page_of(after(*life[: n + 1])) for n in range(4)]
    assert [(each.action, each.key) for each in actions] == [
        ("trigger", "a"), ("raise", "a"), ("trigger", "a"), ("resolve", "a"),
    ]  # fmt: skip


def test_one_page_of_many_ends_with_the_last_of_them():
    many = word("opened", "a", "b", "c")
    life = [
        many,
        word("resolved", "a", over=("a",)),
        word("escalated", "b"),
        word("resolved", "c"),
        word("resolved", "b"),
    ]
    told = [page_of(after(*life[: n + 1])) for n in range(5)]
    assert {each.key for each in told} == {"a"}
    assert [each.action for each in told] == ["trigger", "update", "raise", "update", "resolve"]
    assert [sorted(each.left) for each in told] == [["a", "b", "c"], ["b", "c"], ["b", "c"], ["b"], []]


def test_many_that_are_over_at_once_end_the_page():
    life = [word("opened", "a", "b"), word("resolved", "b", "a", over=("a", "b"))]
    assert page_of(after(*life)) == Page("resolve", "a", frozenset())


def test_what_comes_back_triggers_again():
    life = [word("opened", "a"), word("resolved", "a"), word("reopened", "a")]
    assert page_of(after(*life)) == Page("trigger", "a", frozenset("a"))


def test_an_escalation_that_nobody_heard_the_beginning_of_is_a_trigger():
    assert page_of(after(word("escalated", "a"))).action == "trigger"


def test_a_follow_up_opens_no_page():
    follow = word("follow-up", "a")
    assert page_of(after(follow)).action == "none"
    assert page_of(after(word("opened", "a"), follow)).action == "update"
    assert page_of(after(word("opened", "a"), word("resolved", "a"), follow)).action == "none"


def test_who_has_one_of_many_in_hand_has_not_the_others():
    many = word("opened", "a", "b")
    assert page_of(after(many, word("acknowledged", "b"))).action == "update"
    assert page_of(after(many, word("acknowledged", "a"))) == Page("acknowledge", "a", frozenset("ab"))
    assert page_of(after(word("acknowledged", "a"))).action == "none"


def test_the_thread_is_the_first_message_that_told_of_the_incident_and_has_a_place():
    many, other = word("opened", "a", "b"), word("opened", "c")
    told = (Told(word("opened", "b"), "", 1.0), Told(other, "p0", 2.0), Told(many, "p1", 3.0))
    assert opening(Outgoing(word("resolved", "b"), "m", "t", before=told)) == told[2]
    assert opening(Outgoing(word("resolved", "x"), "m", "t", before=told)) is None


def test_the_end_of_what_was_never_told_is_still_passed_on():
    assert page_of(after(word("resolved", "a"))).action == "resolve"


def test_a_digest_opens_no_thread_and_a_test_ends_at_once():
    digest = Told(word("digest", "a"), "p0", 1.0)
    assert opening(Outgoing(word("escalated", "a"), "m", "t", before=(digest,))) is None
    assert page_of(after(word("test", "x"))).action == "test"
    assert page_of(after(word("digest", "x"))).action == "none"


def test_what_began_and_ended_before_it_was_told_rings_nobody():
    assert page_of(after(word("opened", "a", over=("a",)))).action == "resolve"
