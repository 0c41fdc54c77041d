-- what was written before at the keys in frame `asked`
SELECT w.metric_id, w.attempt, w.step, w.value, w.ordinal
FROM rewrite_rows w
JOIN asked a ON a.metric_id = w.metric_id AND a.attempt = w.attempt AND a.step = w.step
WHERE w.run_id = $run_id
