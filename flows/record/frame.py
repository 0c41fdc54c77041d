"""The frame of every page: head, policy, style, skip link, landmarks. It loads nothing and runs nothing."""

import base64
import hashlib
from html import escape

from flows.messages.plain import plain
from flows.record.style import STYLE

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"


def document(title: str, main: str, *, header: str = "", footer: str = "", skip: str = "To the findings") -> str:
    """A whole HTML document around `main`; `title` is text, the rest is HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(plain(title, 120))}: watchkeeper</title><style>{STYLE}</style></head>\n"
        f'<body><a class="skip" href="#main">{skip}</a>{header}\n<main id="main">\n{main}\n</main>\n'
        f'<footer class="quiet">{footer}</footer></body></html>\n'
    )
