import json

import pytest

from flows.channels.catalogue import open_channel
from flows.channels.contract import Outgoing, message_id, thread_id
from flows.errors import BadConfig, DeliveryFailed
from flows.messages.compose import compose


def outgoing(incident, context, png=None):
    message = compose("hero", incident, "opened", context)
    return Outgoing(message, message_id("d1"), thread_id(message.thread), png)


def test_a_message_lies_in_the_folder_in_every_dialect(tmp_path, incident, context, png):
    open_channel("dry", f"folder:{tmp_path}/out").send(outgoing(incident, context, png))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["d1.html", "d1.json", "d1.md", "d1.png", "d1.slack.json", "d1.txt"]
    told = json.loads((tmp_path / "out" / "d1.json").read_text())
    assert told["message_id"] == "<d1@watchkeeper.invalid>" and told["message"]["severity"] == "S3"
    assert (tmp_path / "out" / "d1.png").read_bytes() == png


def test_a_repeat_replaces_its_own_files(tmp_path, incident, context):
    channel = open_channel("dry", f"folder://{tmp_path}/out")
    channel.send(outgoing(incident, context))
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    channel.send(outgoing(incident, context))
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path, incident, context):
    (tmp_path / "file").write_text("")
    with pytest.raises(DeliveryFailed, match="make the folder writable"):
        open_channel("dry", f"folder:{tmp_path}/file/out").send(outgoing(incident, context))


@pytest.mark.parametrize("url", ["", "slack", "folder:", "slack://"])
def test_a_url_that_says_nothing_is_refused_with_what_to_write(url):
    with pytest.raises(BadConfig, match="channel 'ops'"):
        open_channel("ops", url)
