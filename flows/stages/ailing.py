"""Which channels do not work, by what the outbox says of them."""

from flows.store import Store


def ailing_channels(store: Store) -> dict[str, tuple[str, bool]]:
    """Channels whose newest word is a failure: name -> (error, whether it is for good)."""
    answer = store.query(
        "SELECT channel, arg_max(error, created_at) AS error, bool_or(state = 'dead') AS dead FROM deliveries d"
        " WHERE error IS NOT NULL AND state <> 'delivered' AND created_at > coalesce((SELECT max(delivered_at)"
        " FROM deliveries o WHERE o.channel = d.channel), TIMESTAMP '1970-01-01') GROUP BY channel"
    )
    return {row["channel"]: (row["error"], row["dead"]) for row in answer.rows.iter_rows(named=True)}
