-- every sample of every attempt in the order of its insertion; of a step that was written again the first value
SELECT s.step, s.logged_at, m.name, CASE WHEN w.ordinal IS NULL THEN s.value ELSE w.value END AS value
FROM (SELECT *, rowid AS place FROM sample_rows WHERE run_id = $run_id) s
JOIN metric_rows m ON m.run_id = s.run_id AND m.metric_id = s.metric_id
LEFT JOIN rewrite_rows w
  ON w.run_id = s.run_id AND w.metric_id = s.metric_id AND w.attempt = s.attempt AND w.step = s.step AND w.ordinal = 1
ORDER BY s.batch, s.place
