"""The services at home: HTTP servers on loopback that check what the real ones check, and answer as they do.

`script` holds what the next requests meet instead: (status, headers, body), "hang" or "drop". `problems` is what a real
service would have refused, `calls` every request. `texts` is what people would read.
"""

import base64
import hashlib
import hmac
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

SECRET = "T0kenThatNobodyMaySee-0123456789"
Reply = tuple[int, dict[str, str], bytes]
OK_JSON = {"Content-Type": "application/json"}


class Fake:
    secret_in_path = False
    has_words = True  # whether an answer that is no word of the service can be told from one

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.calls: list[tuple[str, str, dict[str, str], bytes]] = []
        self.problems: list[str] = []
        self.release = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {k.lower(): v for k, v in self.headers.items()}
                fake.calls.append((self.command, self.path, headers, body))
                met = fake.script.pop(0) if fake.script else None
                if met == "hang":
                    fake.release.wait(20)
                if met in ("hang", "drop"):
                    self.close_connection = True
                    return
                status, extra, text = met or fake.reply(self.command, self.path, headers, body)
                self.send_response(status)
                for key, value in {**extra, "Content-Length": str(len(text))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_PUT = answer

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    def must(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def json(self, status: int, value: Any) -> Reply:
        return status, OK_JSON, json.dumps(value).encode()

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        raise NotImplementedError


class Slack(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.files: list[dict[str, Any]] = []
        self.refuse: list[str] = []  # codes for the next calls

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if path == "/upload":
            self.must(body[:4] == b"\x89PNG", "upload is no picture")
            return 200, {}, b"OK - 70"
        self.must(headers.get("authorization") == f"Bearer {SECRET}", "no token")
        if self.refuse and (code := self.refuse.pop(0)):
            return self.json(200, {"ok": False, "error": code})
        name = path.removeprefix("/")
        if name == "files.getUploadURLExternal":
            self.must("form" in headers["content-type"], "takes a form only")
            return self.json(200, {"ok": True, "upload_url": f"{self.address}/upload", "file_id": "F1"})
        said = json.loads(body)
        if name == "files.completeUploadExternal":
            self.files.append(said)
            return self.json(200, {"ok": True})
        self._check(said)
        if name == "chat.update":
            if said["ts"] not in self.messages:
                return self.json(200, {"ok": False, "error": "message_not_found"})
            self.messages[said["ts"]] |= said
            return self.json(200, {"ok": True, "ts": said["ts"], "channel": "C1"})
        self.must(name == "chat.postMessage", f"no such method {name}")
        if said["client_msg_id"] in self.keys:
            return self.json(200, {"ok": True, "ts": self.keys[said["client_msg_id"]], "channel": "C1"})
        if "thread_ts" in said and said["thread_ts"] not in self.messages:
            return self.json(200, {"ok": False, "error": "thread_not_found"})
        ts = f"1700000000.{len(self.keys):06}"
        self.messages[ts], self.keys[said["client_msg_id"]] = said, ts
        return self.json(200, {"ok": True, "ts": ts, "channel": "C1"})

    def _check(self, said: dict[str, Any]) -> None:
        blocks = said.get("blocks", [])
        self.must(len(blocks) <= 50, "invalid_blocks: more than 50")
        self.must(len(said["text"]) <= 4000, "msg_too_long")
        self.must(not re.search(r"[<>]", said["text"]), "markup in the text")
        self.must(sum(len(text) for text in strings(blocks)) <= 13_200, "msg_blocks_too_long")
        for text in strings(blocks):
            self.must(len(text) <= 3000, "text of more than 3,000 characters")
        for block in blocks:
            self.must(block["type"] in ("header", "rich_text", "divider"), f"{block['type']} reads markup")
            if block["type"] == "header":
                self.must(len(block["text"]["text"]) <= 150, "header of more than 150")

    def texts(self) -> list[str]:
        return [f"{each['text']}\n" + "\n".join(strings(each.get("blocks", []))) for each in self.messages.values()]

    def roots(self) -> int:
        return sum("thread_ts" not in each for each in self.messages.values())

    def count(self) -> int:
        return len(self.messages)


class Discord(Fake):
    secret_in_path = True

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, dict[str, Any]] = {}
        self.forum = False

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        where, _, query = path.partition("?")
        base = f"/api/webhooks/123/{SECRET}"
        if not where.startswith(base):
            return self.json(401, {"message": "Invalid Webhook Token", "code": 50027})
        said = payload_of(headers, body)
        self._check(said)
        if method == "PATCH":
            key = where.rpartition("/")[2]
            if key not in self.messages:
                return self.json(404, {"message": "Unknown Message", "code": 10008})
            self.messages[key] |= said
            return self.json(200, {"id": key, "channel_id": "77"})
        thread = re.search(r"thread_id=(\d+)", query)
        self.must("wait=true" in query, "does not wait for the message")
        if self.forum and not thread:
            self.must(0 < len(said.get("thread_name", "")) <= 100, "a forum needs a thread_name")
        key = str(900 + len(self.messages))
        channel = thread[1] if thread else (key if self.forum else "77")
        self.messages[key] = {**said, "thread": thread[1] if thread else ""}
        return self.json(200, {"id": key, "channel_id": channel})

    def _check(self, said: dict[str, Any]) -> None:
        self.must(said.get("allowed_mentions") == {"parse": []}, "mentions are not forbidden")
        self.must(len(said.get("content", "")) <= 2000, "content of more than 2,000")
        embeds = said.get("embeds", [])
        self.must(bool(said.get("content") or embeds), "Cannot send an empty message")
        self.must(len(embeds) <= 10, "more than 10 embeds")
        for each in embeds:
            self.must(0 < len(each["description"]) <= 4096, "description of more than 4,096")
        self.must(sum(len(each["description"]) for each in embeds) <= 6000, "embeds of more than 6,000")

    def texts(self) -> list[str]:
        return ["\n".join(strings(each)) for each in self.messages.values()]

    def roots(self) -> int:
        return sum(bool(each.get("embeds")) and not each["thread"] for each in self.messages.values())

    def count(self) -> int:
        return len(self.messages)


class Teams(Fake):
    secret_in_path, has_words = True, False

    def __init__(self) -> None:
        super().__init__()
        self.cards: list[dict[str, Any]] = []

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        self.must(len(body) <= 28 * 1024, "more than 28 KB")
        said = json.loads(body)
        self.must(said["type"] == "message" and len(said["attachments"]) == 1, "no message with a card")
        card = said["attachments"][0]["content"]
        self.must(said["attachments"][0]["contentType"] == "application/vnd.microsoft.card.adaptive", "no card")
        self.must(card["type"] == "AdaptiveCard" and bool(card["version"]), "no AdaptiveCard")
        for part in card["body"]:
            self.must(part["type"] == "RichTextBlock", f"{part['type']} reads Markdown")
            self.must(all(run["type"] == "TextRun" and run["text"] for run in part["inlines"]), "an empty run")
        for action in card.get("actions", []):
            self.must(action["url"].startswith("https://"), "an action that is no link")
        self.cards.append(card)
        return 202, {}, b""

    def texts(self) -> list[str]:
        return ["\n".join(strings(each["body"])) for each in self.cards]

    def roots(self) -> int:
        return len(self.cards)

    count = roots


class GitHub(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.comments: dict[int, str] = {}

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        self.must(bool(headers.get("user-agent")), "no User-Agent")
        if headers.get("authorization") != f"Bearer {SECRET}":
            return self.json(401, {"message": "Bad credentials"})
        where = path.partition("?")[0]
        if method == "GET":
            self.must(where == "/repos/ana/hero/issues/7/comments", f"no such place {where}")
            return self.json(200, [{"id": key, "body": text} for key, text in self.comments.items()])
        text = json.loads(body)["body"]
        if len(text) > 65_536 or not text:
            self.problems.append("body is too long")
            return self.json(422, {"message": "Validation Failed"})
        if method == "PATCH":
            key = int(where.rpartition("/")[2])
            self.must(where == f"/repos/ana/hero/issues/comments/{key}", f"no such place {where}")
            if key not in self.comments:
                return self.json(404, {"message": "Not Found"})
            self.comments[key] = text
            return self.json(200, {"id": key})
        self.must(where == "/repos/ana/hero/issues/7/comments", f"no such place {where}")
        key = 1000 + len(self.comments)
        self.comments[key] = text
        return self.json(201, {"id": key})

    def texts(self) -> list[str]:
        return [re.sub(r"^<!-- [\w., -]* -->\n", "", text) for text in self.comments.values()]

    def roots(self) -> int:
        return sum("<!-- watchkeeper call" not in text for text in self.comments.values())

    def count(self) -> int:
        return len(self.comments)


class PagerDuty(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, str] = {}  # open pages by key, and their state
        self.rung: list[str] = []
        self.ended: list[str] = []

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        self.must((method, path) == ("POST", "/v2/enqueue"), "no such place")
        self.must(len(body) <= 512 * 1024, "more than 512 KB")
        said = json.loads(body)
        self.must(said["routing_key"] == SECRET, "no such key")
        key, action = said["dedup_key"], said["event_action"]
        self.must(0 < len(key) <= 255, "dedup_key of more than 255")
        if action == "trigger":
            about = said["payload"]
            self.must(0 < len(about["summary"]) <= 1024, "summary of more than 1,024")
            self.must(about["severity"] in ("critical", "error", "warning", "info"), "no such severity")
            self.must(bool(about["source"]) and "T" in about["timestamp"], "no source or time")
            self.must(all(each["href"].startswith("https://") for each in said.get("links", [])), "no link")
            if key not in self.pages:
                self.rung.append(key)
            self.pages.setdefault(key, "triggered")
        elif action == "acknowledge":
            self.pages[key] = "acknowledged"
        else:
            self.must(action == "resolve", f"no such action {action}")
            if self.pages.pop(key, None):
                self.ended.append(key)
        return self.json(202, {"status": "success", "message": "Event processed", "dedup_key": key})

    def texts(self) -> list[str]:
        return ["\n".join(strings(json.loads(body).get("payload", {}))) for *_, body in self.calls if body]

    def roots(self) -> int:
        return len(set(self.rung))

    def count(self) -> int:
        return len(self.rung)


class Opsgenie(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, str] = {}
        self.rung: list[str] = []
        self.ended: list[str] = []

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        self.must(headers.get("authorization") == f"GenieKey {SECRET}", "no key")
        said = json.loads(body)
        if path == "/v2/alerts":
            self.must(0 < len(said["message"]) <= 130, "message of more than 130")
            self.must(0 < len(said["alias"]) <= 512, "alias of more than 512")
            self.must(len(said["description"]) <= 15_000, "description of more than 15,000")
            self.must(sum(len(k) + len(v) for k, v in said["details"].items()) <= 8000, "details of more than 8,000")
            self.must(said["priority"] in ("P1", "P2", "P3", "P4", "P5"), "no such priority")
            self.must(len(said["entity"]) <= 512 and len(said["source"]) <= 100, "entity or source too long")
            if said["alias"] not in self.pages:
                self.rung.append(said["alias"])
            self.pages.setdefault(said["alias"], "triggered")
        else:
            found = re.fullmatch(r"/v2/alerts/([^/]+)/(close|acknowledge|notes)\?identifierType=alias", path)
            key = unquote(found[1]) if found else ""
            self.must(found is not None and len(said["note"]) <= 25_000, f"no such place {path}")
            if found and found[2] == "close" and self.pages.pop(key, None):
                self.ended.append(key)
            if found and found[2] == "acknowledge":
                self.pages[key] = "acknowledged"
        return self.json(202, {"result": "Request will be processed", "took": 0.1, "requestId": "r-1"})

    def texts(self) -> list[str]:
        return ["\n".join(strings(json.loads(body))) for *_, body in self.calls if body]

    def roots(self) -> int:
        return len(set(self.rung))

    def count(self) -> int:
        return len(self.rung)


class Alertmanager(Fake):
    has_words = False

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        self.must((method, path) == ("POST", "/api/v2/alerts"), "no such place")
        for each in json.loads(body):
            self.must(all(each["labels"].values()) and "alertname" in each["labels"], "an empty label")
            self.must(each["startsAt"] <= each["endsAt"], "starts after its end")
            self.alerts[tuple(sorted(each["labels"].items()))] = each
        return 200, {}, b""

    def firing(self, now: str) -> list[dict[str, str]]:
        return [dict(key) for key, each in self.alerts.items() if each["endsAt"] > now]

    def texts(self) -> list[str]:
        return ["\n".join(strings(each["annotations"])) for each in self.alerts.values()]

    def roots(self) -> int:
        return len({dict(key)["incident"] for key in self.alerts})

    def count(self) -> int:
        return len(self.alerts)


class Webhook(Fake):
    has_words = False

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[dict[str, Any]] = []

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        known = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
        self.must(headers["webhook-signature"] == f"v1,{known}", "bad signature")
        said = json.loads(body)
        self.must(said["schema"] == "watchkeeper.alert/1", "no such schema")
        self.must(said["action"] in ("trigger", "update", "acknowledge", "resolve", "test"), "no such action")
        self.documents.append(said)
        return 204, {}, b""

    def texts(self) -> list[str]:
        return ["\n".join(strings(each)) for each in self.documents]

    def roots(self) -> int:
        return len({each["dedup_key"] for each in self.documents})

    def count(self) -> int:
        return len({each["message_id"] for each in self.documents})


def strings(value: Any) -> list[str]:
    """Every text that is shown: not the names of kinds and styles, nor addresses."""
    hidden = ("run", "type", "style", "url", "href", "color", "weight", "size", "fontType", "spacing", "schema")
    if isinstance(value, dict):
        return [text for key, each in value.items() if key not in hidden for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


def payload_of(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """The JSON of a request that may be a form with a file."""
    if "multipart" not in headers.get("content-type", ""):
        return dict(json.loads(body))
    found = re.search(rb'name="payload_json"\r\n(?:[^\r\n]+\r\n)*\r\n(.*?)\r\n--', body, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))
