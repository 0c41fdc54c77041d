"""Slack, Discord and GitHub: what is edited, what is said anew, and what becomes of it when somebody deletes things."""

from dataclasses import replace

import pytest
import services
from pydantic import SecretStr
from services import SECRET

from flows.channels.catalogue import open_configured
from flows.channels.contract import Outgoing, Told, TryLater
from flows.channels.github import GitHub
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.messages.compose import compose
from flows.sections import ChannelSection


class Talk:
    """A channel and what it has taken."""

    def __init__(self, kind, incident, context, to):
        self.fake, self.incident, self.context, self.taken = kind(), incident, context, []
        url = f"{self.fake.address}/api/webhooks/123/{SECRET}" if kind is services.Discord else self.fake.address
        token = None if kind is services.Discord else SecretStr(SECRET)
        self.channel = open_configured(
            ChannelSection.model_construct(
                name="ops", service=kind.__name__.lower(), url=SecretStr(url), token=token, to=to, severities={}
            ),
            5.0,
        )

    def out(self, transition, **changes):
        about = {**self.incident, **changes, **({"resolved_step": 5900.0} if transition == "resolved" else {})}
        return Outgoing(
            compose("hero", about, transition, self.context), f"<{transition}{len(self.taken)}@x>", "<t@x>", since=1.8e9,
            before=tuple(self.taken),
        )  # fmt: skip

    def say(self, transition, chart=None, **changes):
        outgoing = replace(self.out(transition, **changes), chart=chart)
        receipt = self.channel.send(outgoing)
        self.taken.append(Told(outgoing.message, receipt.reference, 1.8e9))
        return receipt


@pytest.fixture
def talk(request, incident, context):
    kind, to = request.param
    made = Talk(kind, incident, context, to)
    yield made
    made.fake.close()


slack = pytest.mark.parametrize("talk", [(services.Slack, "C1")], indirect=True, ids=["slack"])
discord = pytest.mark.parametrize("talk", [(services.Discord, "")], indirect=True, ids=["discord"])
forum = pytest.mark.parametrize("talk", [(services.Discord, "forum")], indirect=True, ids=["forum"])
github = pytest.mark.parametrize("talk", [(services.GitHub, "ana/hero#7")], indirect=True, ids=["github"])


@slack
def test_slack_keeps_the_first_message_current_and_threads_every_later_word(talk):
    first = talk.say("opened")
    talk.say("escalated", severity="S4")
    talk.say("resolved", severity="S4")
    root, *replies = talk.fake.messages.values()
    assert [each["thread_ts"] for each in replies] == [first.reference.split("/")[1]] * 2
    assert root["text"].startswith("S4 hero: Resolved: ")
    told = services.strings(root["blocks"])
    assert told[told.index("First told: ") + 1].startswith("S3 hero: train/loss diverged")
    assert [each["reply_broadcast"] for each in replies] == [
        True,
        False,
    ]  # who is not in the thread hears that it is worse
    assert talk.fake.problems == []


@slack
def test_slack_shows_the_chart_in_the_thread(talk, png):
    assert talk.say("opened", chart=png).note == ""
    ((file),) = talk.fake.files
    assert (file["channel_id"], file["thread_ts"]) == ("C1", "1700000000.000000")
    talk.fake.refuse = ["", "missing_scope"]
    assert talk.say("opened", chart=png, id="other").note == "the text arrived, the chart did not (missing_scope)"


@slack
def test_slack_without_its_first_message_begins_a_new_one(talk):
    talk.say("opened")
    talk.fake.messages.clear()
    talk.say("resolved")
    (anew,) = talk.fake.messages.values()
    assert "thread_ts" not in anew and anew["text"].startswith("S3 hero: Resolved")


@slack
@pytest.mark.parametrize("code", ["invalid_blocks", "msg_blocks_too_long", "msg_too_long"])
def test_blocks_that_slack_does_not_take_are_said_plainly(talk, code):
    talk.fake.refuse = [code]
    talk.say("opened")
    (said,) = talk.fake.messages.values()
    assert "blocks" not in said and "Needed: page" in said["text"]


@slack
def test_the_codes_of_slack_say_whether_to_try_again(talk):
    told = {}
    for code in (
        "internal_error",
        "service_unavailable",
        "ratelimited",
        "invalid_auth",
        "not_in_channel",
        "<b>odd</b>",
    ):
        talk.fake.refuse = [code]
        with pytest.raises((DeliveryFailed, UndeliverableError)) as caught:
            talk.channel.send(talk.out("opened"))
        told[code] = (isinstance(caught.value, DeliveryFailed), str(caught.value).split(": ", 1)[-1].split(";")[0])
    assert told["internal_error"] == (True, "internal_error") and told["service_unavailable"][0]
    assert told["ratelimited"][0] and told["invalid_auth"] == (False, "invalid_auth") and not told["not_in_channel"][0]
    assert told["<b>odd</b>"] == (False, "unknown error")


@slack
def test_a_key_of_which_slack_has_lost_the_message_is_no_end(talk):
    talk.fake.refuse = ["duplicate_message_not_found"]
    talk.say("opened")
    assert talk.fake.count() == 1


@discord
def test_discord_edits_and_calls_with_a_short_line(talk, png):
    talk.say("opened", chart=png)
    talk.say("escalated", severity="S4")
    talk.say("acknowledged", severity="S4")
    root, call = talk.fake.messages.values()
    assert "now" in root["embeds"][0]["description"] and root["content"].startswith("**S4 hero: ")
    assert call["content"].startswith("**S4 hero: Worse: ") and "embeds" not in call
    assert talk.fake.problems == []


@discord
def test_discord_keeps_the_picture_current(talk, png):
    talk.say("opened", chart=png)
    talk.say("escalated", chart=png)
    *_, body = next(call for call in talk.fake.calls if call[0] == "PATCH")
    assert png in body
    assert talk.fake.messages["900"]["attachments"] == [{"id": 0, "filename": "chart.png"}]
    assert talk.fake.messages["900"]["embeds"][0]["image"] == {"url": "attachment://chart.png"}


@discord
def test_a_picture_that_is_too_large_is_left_out(talk, png):
    talk.fake.script = [(413, {}, b"{}")]
    talk.say("opened", chart=png)
    assert talk.fake.count() == 1 and "image" not in talk.fake.messages["900"]["embeds"][0]


@discord
def test_a_deleted_message_of_discord_is_said_anew(talk):
    talk.say("opened")
    talk.fake.messages.clear()
    talk.say("escalated")
    assert talk.fake.count() == 1 and talk.fake.messages["900"]["embeds"]


@discord
def test_the_pause_in_the_body_of_discord_is_the_exact_one(talk):
    talk.fake.script = [(429, {"Retry-After": "2"}, b'{"retry_after": 1.5, "global": false}')]
    with pytest.raises(TryLater) as told:
        talk.say("opened")
    assert told.value.retry_after_seconds == 1.5


@forum
def test_in_a_forum_an_incident_is_a_post_with_every_word_in_it(talk):
    talk.fake.forum = True
    talk.say("opened")
    talk.say("escalated")
    talk.say("resolved")
    assert [each["thread"] for each in talk.fake.messages.values()] == ["", "900", "900"]
    assert talk.fake.messages["900"]["thread_name"].startswith("S3 hero: train/loss diverged")
    assert talk.fake.problems == []


@github
def test_github_has_one_comment_with_every_word_and_calls_for_pages(talk):
    talk.say("opened", severity="S2")
    talk.say("escalated", severity="S3")
    talk.say("acknowledged", severity="S3")
    talk.say("resolved", severity="S3")
    record, *calls = talk.fake.comments.values()
    words = ("**S3 hero: Resolved", "<summary>S3 hero: In hand", "<summary>S3 hero: Worse", "<summary>S2 hero: train")
    assert sorted(map(record.index, words)) == list(map(record.index, words))
    assert record.count("<details>") == 3
    assert [call.partition("\n\n")[2].split(":")[1] for call in calls] == [" Worse", " Resolved"]
    assert all("[The whole incident](#issuecomment-1000)" in call for call in calls)


@github
def test_what_is_no_page_calls_nobody_anew(talk):
    for transition in ("opened", "escalated", "resolved"):
        talk.say(transition, severity="S2")
    assert talk.fake.count() == 1


@github
def test_a_long_life_keeps_the_newest_words_within_what_github_takes(talk):
    talk.say("opened", severity="S2")
    talk.taken += [replace(talk.taken[0], message=replace(talk.taken[0].message, title="old " * 60))] * 400
    talk.say("escalated", severity="S2")
    (record,) = talk.fake.comments.values()
    assert 60_000 < len(record) <= 65_536
    assert "earlier" in record.rsplit("\n", 1)[1]


@github
def test_a_deleted_comment_is_written_anew(talk):
    talk.say("opened")
    talk.fake.comments.clear()
    talk.say("resolved", severity="S2")
    assert list(talk.fake.comments) == [1000] and "Resolved" in talk.fake.comments[1000]


@github
def test_the_hidden_mark_ends_no_comment_early(talk):
    talk.incident = {**talk.incident, "id": "a-->b<script>"}
    talk.say("opened")
    assert talk.fake.comments[1000].startswith("<!-- watchkeeper hero a-b-script- -->\n")


@github
def test_spent_requests_are_waited_for_and_a_missing_right_is_not(talk):
    talk.fake.script = [(403, {"X-RateLimit-Remaining": "0"}, b"{}"), (403, {"Retry-After": "9"}, b"{}")]
    for wait in (900.0, 9.0):
        with pytest.raises(TryLater) as told:
            talk.say("opened")
        assert told.value.retry_after_seconds == wait


@pytest.mark.parametrize("to", ["hero#7", "ana/hero", "ana/hero#x", "ana/../x#1", ""])
def test_what_names_no_issue_is_refused(to):
    from flows.channels.github import open_github

    with pytest.raises(BadConfig, match="owner/repository#number"):
        open_github("ops", to, SECRET)
    assert open_github("ops", "ana/he.ro#7", SECRET) == GitHub("ops", "ana/he.ro", 7, SECRET)


@pytest.mark.parametrize(
    "talk", [(services.Slack, "C1"), (services.Discord, ""), (services.GitHub, "ana/hero#7")], indirect=True
)
def test_how_it_goes_on_is_told_in_the_thread_and_does_not_hide_how_it_stands(talk):
    for transition in ("opened", "resolved", "worked"):
        talk.say(transition, severity="S2")
    first = talk.fake.texts()[0].replace("\\", "")
    assert first.lstrip("\n*").startswith("S2 hero: Resolved: ")
    if isinstance(talk.fake, services.GitHub):
        assert first.count("<details>") == 2 and talk.fake.count() == 1
    else:
        assert talk.fake.count() == 3
