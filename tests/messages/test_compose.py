import pytest

from flows.messages.as_text import as_text
from flows.messages.blocks import Facts, Image, from_json, to_json
from flows.messages.compose import compose, compose_all
from flows.messages.facts import Context, evidence_query, explained, movement, rollback
from flows.records import Event


def lines(message):
    return as_text(message).split("\n")


@pytest.mark.parametrize("transition", ["opened", "escalated", "reopened", "lowered", "resolved"])
def test_the_chat_form_has_at_most_twelve_lines(incident, context, transition):
    full = Context(
        **{**vars(context), "reference": "at percentile 99 of the ladder", "similar": "2 like it", "owner": "ana"}
    )
    assert len(lines(compose("hero", {**incident, "resolved_step": 5900.0}, transition, full))) <= 12


def test_what_tells_the_hypotheses_apart_and_when_to_look_again_have_their_place(incident, context):
    apart = {"other": "lr_schedule_reset", "by": "lr_schedule_reset if the rate moved first", "role": ""}
    ranked = [{**each, "apart": apart} for each in incident["hypotheses"]]
    offered = [
        {**each, "again": [5_300.0, 5_425.0, 6_275.0], "bound": "[[bound]]\n"} for each in incident["suggestions"]
    ]
    full = Context(**{**vars(context), "reference": "at percentile 99", "similar": "2 like it", "owner": "ana"})
    told = lines(compose("hero", {**incident, "hypotheses": ranked, "suggestions": offered}, "opened", full))
    assert len(told) <= 12
    assert next(line for line in told if line.startswith("Likely")).endswith(
        "told apart: lr_schedule_reset if the rate moved first"
    )
    assert any("look again at steps 5,300, 5,425 and 6,275" in line for line in told)


def test_the_fields_come_in_the_order_of_an_alert(incident, context):
    full = Context(**{**vars(context), "reference": "at percentile 99 of the ladder"})
    labels = [line.split(":")[0] for line in lines(compose("hero", incident, "opened", full))]
    assert labels[1:9] == ["Needed", "Explained by", "Moved", "Likely", "Reference", "Option", "Way back", "Limits"]
    assert labels[0] == "S3 hero"


def test_the_first_line_is_the_sentence_with_severity_and_run(incident, context):
    assert lines(compose("hero", incident, "opened", context))[0] == f"S3 hero: {incident['title']}"
    assert lines(compose("hero", incident, "resolved", context))[0] == f"S3 hero: Resolved: {incident['title']}"


def test_an_escalation_says_what_it_was_before(incident, context):
    assert "was S2, S3 since step 5,222" in lines(compose("hero", incident, "escalated", context))[1]


def test_what_moved_is_ordered_by_onset_with_lead_times(incident, context):
    moved = next(line for line in lines(compose("hero", incident, "opened", context)) if line.startswith("Moved"))
    assert "grad/norm/total spike ↑ ×8.17, then train/loss divergence ↑ ×2.51 (+6 steps)" in moved
    assert moved.endswith("not moved: eval_loss, mfu")


def test_an_event_near_the_onset_is_named_with_its_offset(incident, context):
    assert explained(incident, context.events) == (
        "resume at step 5,200 (4 steps before the onset): learning rate 3e-4 to 2.4e-3"
    )


def test_no_event_is_said_and_not_left_out(incident):
    assert explained(incident, [Event("resume", 100.0)]).startswith("no event on record between step 5,")


def test_an_event_that_spans_the_onset_counts(incident):
    assert "ramp" in explained(incident, [Event("ramp", 10.0, end_step=9000.0)])


def test_the_way_back_is_the_newest_checkpoint_before_the_first_precursor(incident, context):
    way = "checkpoint 5,000 is the newest before the onset; 222 steps lost"
    skip = "; skip the data of steps 5,204 to 5,222"
    assert rollback(incident, context.events) == way + skip
    assert rollback(incident, context.events, 4e6) == f"{way} (about 888 million tokens){skip}"
    broken = Event("checkpoint", 5_100.0, detail={"complete": False})
    assert rollback(incident, [*context.events, broken]) == way + skip
    assert rollback(incident, []).startswith("no checkpoint before the onset is on record")


def test_the_sign_of_a_movement_follows_its_direction():
    assert movement({"kind": "level", "direction": "up", "magnitude": -0.157, "unit": "log"}) == "level ↑ +17 %"
    assert movement({"kind": "level", "direction": "down", "magnitude": 0.157, "unit": "log"}) == "level ↓ −15 %"


def test_an_infinite_or_missing_magnitude_is_a_word():
    assert movement({"kind": "nonfinite", "magnitude": float("inf")}) == "nonfinite Infinity"
    assert movement({"kind": "nonfinite"}) == "nonfinite NaN"


def test_the_query_quotes_names_for_sql_and_for_the_shell(incident):
    incident["findings"][0]["metric"] = "it's $(rm -rf ~) `x`"
    command = evidence_query("hero", incident)
    assert "it'\"'\"''\"'\"'s $(rm" in command  # '' for SQL, each ' closed and reopened for the shell
    assert command.startswith("watchkeeper sql 'SELECT")


def test_many_incidents_are_one_message_with_a_count_and_the_worst(incident, context):
    told = [
        ({**incident, "id": f"i{n}", "severity": "S2" if n else "S4", "onset_step": float(n)}, "opened")
        for n in range(30)
    ]
    messages = compose_all("hero", told, context)
    assert len(messages) == 1
    assert messages[0].title == "S4 hero: 30 incidents at once: 30 open, 1 to page"
    assert messages[0].severity == "S4" and messages[0].thread == "i0"
    assert len(messages[0].incidents) == 30
    assert len(lines(messages[0])) <= 12
    assert "and 24 more" in as_text(messages[0])
    assert "Needed: page: decide now" in as_text(messages[0])


def test_ten_thousand_incidents_still_make_one_short_message(incident):
    told = [({**incident, "id": f"i{n}"}, "opened") for n in range(10_000)]
    [message] = compose_all("hero", told)
    assert len(as_text(message)) < 4000


def test_an_incident_that_opened_and_ended_within_a_pass_is_told_once(incident):
    over = {**incident, "status": "resolved", "resolved_step": 5300.0}
    [message] = compose_all("hero", [(incident, "opened"), (over, "resolved")])
    assert message.transition == "opened"
    assert "over by step 5,300" in as_text(message)


def test_up_to_three_transitions_are_told_one_by_one(incident):
    told = [({**incident, "id": f"i{n}"}, "opened") for n in range(3)]
    assert [message.thread for message in compose_all("hero", told)] == ["i0", "i1", "i2"]
    assert compose_all("hero", []) == []


def test_a_message_survives_its_way_through_the_outbox(incident, context):
    message = compose("hero", incident, "opened", context)
    assert from_json(to_json(message)) == message
    with pytest.raises(ValueError, match="no message of watchkeeper"):
        from_json("{}")


def test_an_incident_without_anything_but_its_steps_can_be_told():
    bare = {"id": "x", "severity": "S2", "title": "t", "onset_step": 1.0, "detected_step": 1.0}
    message = compose("hero", bare, "opened")
    assert "no pattern of the playbook fits" in as_text(message)
    assert any(isinstance(block, Image) for block in message.blocks)
    assert not any(value == "" for block in message.blocks if isinstance(block, Facts) for _, value in block.pairs[1:2])


def test_a_finding_of_the_whole_run_has_a_name_and_is_not_asked_for_as_a_metric(incident, context):
    rewind = {
        "kind": "rewind",
        "metric": "",
        "onset_step": 5200.0,
        "detected_step": 5201.0,
        "magnitude": 1.0,
        "unit": "attempt",
    }
    message = compose("hero", {**incident, "findings": [rewind, *incident["findings"]]}, "opened", context)
    assert "Moved: the run rewind 1 attempt, then grad/norm/total" in as_text(message)
    assert "name = 'grad/norm/total'" in as_text(message)


def test_a_follow_up_says_how_it_stands_and_an_outcome_whether_it_helped(incident):
    def line(what, why):
        return {"at": "2026-01-01T00:00:00Z", "who": "watchkeeper", "what": what, "why": why, "step": 5_400.0}

    incident["operations"] = [line("followed", "25 samples later plateaued"), line("worked", "rollback helped")]
    message = compose("hero", incident, "worked")
    facts = dict(message.blocks[1].pairs)
    assert message.title.startswith("S3 hero: It helped: ")
    assert (facts["Now"], facts["Before"]) == ("rollback helped", "25 samples later plateaued")
    assert "Option" not in facts and "Option" in dict(compose("hero", incident, "failed").blocks[1].pairs)
