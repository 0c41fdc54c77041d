"""The library of named queries as a person reads it."""


def catalogue() -> str:
    """The library as text: name, title, parameters."""
    from flows.store.library import library

    lines: list[str] = []
    for each in library().values():
        lines.append(f"{each.name:<20} {each.title}")
        for p in each.parameters:
            value = (
                f"=VALUE ({p.kind}, needed)"
                if p.default is None
                else f"={p.default:g}"
                if p.kind == "number"
                else f"={p.default}"
            )
            lines.append(f"{'':<20}   --param {p.name}{value}: {p.meaning}")
    return "\n".join(lines)
