-- the last samples before the fork, as the judge saw them; frame `ancestors`: attempt and the step before which it counts;
-- frame `asked`: metric and the step from which on they are looked for, `lowest` is the least of those
SELECT s.metric_id, s.step,
       coalesce(epoch(s.logged_at), 'NaN'::DOUBLE) AS seconds,
       CASE WHEN w.ordinal IS NULL THEN s.value ELSE w.value END AS value
FROM sample_rows s
JOIN ancestors a ON a.attempt = s.attempt AND s.step < a.before_step
JOIN asked m ON m.metric_id = s.metric_id AND s.step >= m.low
LEFT JOIN rewrite_rows w
  ON w.run_id = s.run_id AND w.metric_id = s.metric_id AND w.attempt = s.attempt AND w.step = s.step AND w.ordinal = 1
WHERE s.run_id = $run_id AND s.step >= $lowest AND NOT s.late
  -- samples that were thinned are no memory: they would look like another cadence
  AND s.step > coalesce((SELECT max(t.last_step) FROM thinned_rows t WHERE t.run_id = $run_id AND t.attempt = s.attempt), '-inf'::DOUBLE)
QUALIFY row_number() OVER (PARTITION BY s.metric_id ORDER BY s.step DESC, s.attempt DESC) <= $n
ORDER BY s.metric_id, s.step
