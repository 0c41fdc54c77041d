"""The few pages that a phone is shown: large, without script, and with nothing loaded from anywhere."""

from collections.abc import Mapping
from html import escape
from typing import Any

from flows.messages.document import SEVERITIES
from flows.messages.plain import plain, step

_STYLE = (
    "body{font:18px/1.5 system-ui,sans-serif;max-width:34em;margin:0 auto;padding:20px;color-scheme:light dark}"
    "h1{font-size:22px;line-height:1.3}label{display:block;margin:16px 0 4px}p{overflow-wrap:anywhere}"
    "input{font:inherit;width:100%;padding:10px;box-sizing:border-box}"
    "button{font:inherit;font-weight:600;width:100%;padding:16px;margin-top:20px}"
)


def page(title: str, *parts: str) -> str:
    """A whole page; `title` is text, `parts` are HTML."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    body = f"<h1>{escape(title)}</h1>" + "".join(parts)
    return f'<!doctype html><html lang="en"><head>{head}<title>{escape(title)}</title></head><body>{body}</body></html>'


def ask(incident: Mapping[str, Any], held_by: str) -> str:
    """What it is about, and the button: only pressing it does something, for previews of links fetch this page too."""
    held = f"<p>{escape(held_by)} has it in hand already.</p>" if held_by else ""
    form = (
        '<form method="post"><label for="who">Your name</label>'
        '<input id="who" name="who" required maxlength="60" autocomplete="name">'
        '<label for="why">What you do about it (may be empty)</label>'
        '<input id="why" name="why" maxlength="300"><button>I have it in hand</button></form>'
    )
    return page(sentence(incident), f"<p>Since step {step(incident['onset_step'])}.</p>", held, form)


def sentence(incident: Mapping[str, Any]) -> str:
    """As the message said it."""
    return f"{SEVERITIES[incident['severity']]} {plain(incident['run'], 60)}: {plain(incident['title'], 240)}"


def note(title: str, text: str) -> str:
    """A page with one sentence."""
    return page(title, f"<p>{escape(text)}</p>")
