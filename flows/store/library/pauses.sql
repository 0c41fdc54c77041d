-- The longest pauses between two steps of a run: stalls, restarts, slow checkpoints.
-- $run text: the run
-- $most number = 20: how many
SELECT attempt, before_step, step, seconds FROM (
    SELECT attempt, step, lag(step) OVER line AS before_step, epoch(logged_at - lag(logged_at) OVER line) AS seconds
    FROM (SELECT attempt, step, min(logged_at) AS logged_at FROM samples WHERE run = $run AND logged_at IS NOT NULL GROUP BY ALL)
    WINDOW line AS (PARTITION BY attempt ORDER BY step)
)
WHERE seconds IS NOT NULL
ORDER BY seconds DESC, step
LIMIT $most::BIGINT
