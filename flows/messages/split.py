"""Long text in pieces that a service takes. A message is split, never refused: a disaster must be heard."""


def split(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` characters, cut at line ends if possible, numbered "(2/3)" when there are several."""
    if limit < 20:
        raise ValueError("a limit below 20 characters leaves no room for text")
    if len(text) <= limit:
        return [text]
    room = limit - len(" (999/999)")
    pieces: list[str] = []
    held = ""
    for line in text.split("\n"):
        for start in range(0, max(len(line), 1), room):
            part = line[start : start + room]
            if held and len(held) + 1 + len(part) > room:
                pieces.append(held)
                held = part
            else:
                held = f"{held}\n{part}" if held else part
    pieces.append(held)
    return [f"{piece} ({index}/{len(pieces)})" for index, piece in enumerate(pieces, start=1)]
