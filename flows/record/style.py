"""The style sheet of every page: light and dark, 320 px to wide, and paper."""

STYLE = """
:root{--paper:#fffffe;--ink:#1a1a1f;--muted:#5f6670;--line:#1d5fa9;--alarm:#b3261f;--band:#9aa7b5;--grid:#e3e6eb;--ladder:#8a5a00;
--card:#f6f7f9;--good:#1e6b3a;--warn:#8a5200;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#ececf0;--muted:#a3abb5;--line:#74b4f5;--alarm:#ff8f85;
--band:#66717e;--grid:#31363d;--ladder:#e0b050;--card:#1d2025;--good:#7ad39a;--warn:#f2b866}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header,main,footer{max-width:980px;margin:0 auto;padding:12px 14px}
h1{font-size:1.45rem;line-height:1.25;margin:.3em 0;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:1.6em 0 .4em}
h3{font-size:1.08rem;line-height:1.35;margin:0 0 .3em;overflow-wrap:anywhere}
h4{font-size:1rem;margin:1em 0 .2em}
p{margin:.4em 0;overflow-wrap:anywhere}
.verdict{border-left:8px solid var(--good);background:var(--card);padding:10px 14px;font-size:1.12rem;font-weight:600}
.verdict.S1,.verdict.S2{border-color:var(--warn)}.verdict.S3,.verdict.S4{border-color:var(--alarm)}
.quiet{color:var(--muted);font-size:.92rem}
.incident{border:1px solid var(--grid);border-left:5px solid var(--muted);padding:12px;margin:14px 0;border-radius:4px}
.incident.S2{border-left-color:var(--warn)}.incident.S3,.incident.S4{border-left-color:var(--alarm)}
.badge{display:inline-block;
border:1.5px solid currentColor;border-radius:3px;padding:0 6px;font-weight:700;font-size:.85rem}
.S2>.badge{color:var(--warn)}.S3>.badge,.S4>.badge{color:var(--alarm)}
.state{display:inline-block;border:1.5px solid var(--muted);border-radius:3px;padding:0 6px;font-weight:600;white-space:nowrap;
font-size:.85rem}
.state.open{border-color:var(--warn);color:var(--warn)}.state.open.S3,.state.open.S4{border-color:var(--alarm);color:var(--alarm)}
.state.not-checked,.state.partly{border-style:dashed}.state.fine{border-color:transparent;color:var(--good)}
.state.past{border-color:transparent;color:var(--muted)}
header nav{font-size:.95rem;overflow-wrap:anywhere}article>h2:first-child{margin-top:0}
.scroll+h3{margin-top:1.2em}
figure{margin:10px 0}svg{width:100%;height:auto;display:block}.wide{display:none}
@media(min-width:700px){.narrow{display:none}.wide{display:block}}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:4px 10px 4px 0;border-bottom:1px solid var(--grid)}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td{overflow-wrap:anywhere;min-width:4.5em;max-width:34em}
pre{background:var(--card);border:1px solid var(--grid);padding:8px;white-space:pre-wrap;overflow-wrap:anywhere;
font-size:.86rem;margin:.4em 0}
ol,ul{padding-left:1.3em;margin:.3em 0}li{margin:.35em 0}
summary{cursor:pointer;padding:.3em 0;font-weight:600}
a{color:var(--line)}:focus-visible{outline:3px solid var(--line);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--paper);padding:8px}
@media print{.narrow{display:none}.wide{display:block}.incident{break-inside:avoid}}
"""
