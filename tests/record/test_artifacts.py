"""What Prefect shows of incidents: the words are text, and each leads to its page."""

from markdown_it import MarkdownIt

from flows.record.artifacts import MOST, Told, listed


def test_an_incident_leads_to_its_page_where_it_has_one():
    told = [Told("S3 opened", "hero", "loss x2", "https://a.example/r/hero/incident-i.html"), Told("S2", "b", "quiet")]
    assert listed(told) == [
        "- **S3 opened** hero: [loss x2](<https://a.example/r/hero/incident-i.html>)",
        "- **S2** b: quiet",
    ]


def test_of_many_the_first_are_told_with_a_count_of_the_rest():
    lines = listed([Told("S2", "hero", str(n)) for n in range(MOST + 3)])
    assert len(lines) == MOST + 1 and lines[-1] == "- and 3 more"


def test_a_hostile_title_is_text_inside_its_link():
    for name in ("](javascript:alert(1))", "<script>x</script>", "[x](https://evil.example)", "a\nb", "**b**|c|"):
        (line,) = listed([Told("S2", name, name, "https://a.example/i.html")])
        shown = MarkdownIt().render(line)
        assert shown.count("<a href=") == 1 and '<a href="https://a.example/i.html">' in shown
        assert "<script" not in shown and "<li>" in shown
