"""HTML for mail: one table-free body with its styles inline, since mail programs drop style sheets."""

from html import escape

from flows.messages.blocks import Block, Code, Divider, Facts, Header, Image, Link, Message, Paragraph

_COLOURS = {"S4": "#8b0000", "S3": "#b3261e", "S2": "#a15c00", "S1": "#4a5568", "S0": "#4a5568"}
_BODY = "font:15px/1.45 system-ui,-apple-system,'Segoe UI',sans-serif;max-width:46em;margin:0 auto;padding:12px"
_CODE = "background:#8881;border:1px solid #8884;padding:8px;white-space:pre-wrap;overflow-wrap:anywhere"


def as_html(message: Message, *, images: bool = True) -> str:
    """A whole document with everything in it. `images` shows attachments by cid:<name>; else their alt text stands."""
    body = "\n".join(_html(block, message, images) for block in (*message.blocks, *message.more))
    head = f'<meta charset="utf-8"><title>{escape(message.title)}</title>'
    page = f'<html lang="en"><head>{head}</head>\n<body><div style="{_BODY}">\n{body}\n</div></body></html>'
    return f"<!doctype html>\n{page}\n"


def _html(block: Block, message: Message, images: bool) -> str:
    match block:
        case Header(text):
            colour = _COLOURS.get(message.severity, "#4a5568")
            style = f"font-size:18px;line-height:1.35;margin:0 0 10px;padding-left:10px;border-left:5px solid {colour}"
            shown = f'<h1 style="{style}">{escape(text)}</h1>'
        case Paragraph(text):
            shown = f"<p>{escape(text)}</p>"
        case Facts(pairs):
            rows = "".join(f'<p style="margin:4px 0"><b>{escape(k)}:</b> {escape(v)}</p>' for k, v in pairs)
            shown = f'<div style="overflow-wrap:anywhere">{rows}</div>'
        case Code(text):
            shown = f'<pre style="{_CODE}">{escape(text)}</pre>'
        case Link(text, url):
            link = f'<a href="{escape(url)}" rel="noreferrer">{escape(text)}</a>'
            shown = f"<p>{link if block.safe else escape(f'{text}: {url}')}</p>"
        case Divider():
            shown = '<hr style="border:0;border-top:1px solid #8886">'
        case Image(name, alt):
            picture = f'<img src="cid:{escape(name)}" alt="{escape(alt)}" style="max-width:100%;height:auto">'
            shown = picture if images else f"<p>{escape(alt)}</p>"
    return shown
