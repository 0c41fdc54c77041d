"""What would leave the house with the operating record, and what stays. Nothing is drawn or written."""

from flows.stages.gather import Terms
from flows.stages.record import published
from flows.store import Store


def preview(store: Store, terms: Terms) -> list[str]:
    """A line a fact: names in full, all else counted."""
    lines: list[str] = []
    for each in published(store, terms):
        page, run = each.page, each.page["run"]
        lines.append(f"run {run['run']}" + (f" (here: {each.run})" if run["run"] != each.run else ""))
        steps = f"steps {run['first_step']:,.15g} to {run['last_step']:,.15g}"
        lines.append(f"  leaves  {steps}, format {run['format']}, step key {run['step_key']}")
        lines.append(f"  leaves  {len(run['metrics'])} metrics: {', '.join(m['name'] for m in run['metrics'])}")
        lines.append(f"  leaves  {len(run['incidents'])} incidents with their findings, hypotheses and suggestions")
        lines += [f"          {i['severity']} {i['title']}" for i in run["incidents"] if i["id"] in page["pages"]]
        counted = {
            "rows of coverage": each.counts["coverage"],
            "events": each.counts["events"],
            "operations": each.counts["operations"],
        }
        lines.append(
            "  leaves  "
            + ", ".join(f"{count} {what}" for what, count in counted.items())
            + f", {len(each.attempts)} attempts"
        )
        lines += [f"  leaves  the samples of these metrics: {page['samples']}"] if page["samples"] else []
        lines += [f"  leaves  a link, {label}: {url}" for label, url in page["links"]]
        stays = [f"{count} {what}" for what, count in sorted(each.veil.withheld.items())]
        lines.append(
            f"  stays   {', '.join([*stays, 'the configuration, messages and their channels, leases, cursors'])}"
        )
    return lines or ["nothing: no run of the store may be published"]
