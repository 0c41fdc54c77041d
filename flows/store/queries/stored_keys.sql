-- the stored values of the keys in frame `asked`; the step range lets whole row groups be skipped
SELECT s.metric_id, s.attempt, s.step, s.value
FROM sample_rows s
JOIN asked a ON a.metric_id = s.metric_id AND a.attempt = s.attempt AND a.step = s.step
WHERE s.run_id = $run_id AND s.step BETWEEN $low AND $high
