"""Times of log lines: ISO text or unix time in any usual unit, as microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

TIME_KEYS = ("_timestamp", "timestamp", "logged_at", "time", "ts", "wall_time", "datetime", "created_at")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# 2001 to 2096: anything else under such a name is a duration or a counter, that is, a metric
PLAUSIBLE_SECONDS = (1e9, 4e9)
MICROS_PER_UNIT = {1: 1e6, 1_000: 1e3, 1_000_000: 1.0, 1_000_000_000: 1e-3}  # units a second -> microseconds a unit


def to_micros(value: object) -> int | None:
    """Microseconds since 1970 of a time, None for what is none. Text without an offset is taken as UTC."""
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    low, high = PLAUSIBLE_SECONDS
    for units, micros in MICROS_PER_UNIT.items():
        if low <= value / units < high if abs(value) < 1e30 else False:
            return round(value * micros)
    return None


def _from_text(text: str) -> int | None:
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return to_micros(float(text))
        except ValueError:
            return None
    if len(text) < 10 or text.isdigit():
        return (
            to_micros(int(text)) if text.isdigit() else None
        )  # "20250101" is a date to fromisoformat, "1700000000" not
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND
