-- what the judge has not seen: the value that stood first, late rows left out
SELECT s.metric_id, s.attempt, s.step,
       coalesce(epoch(s.logged_at), 'NaN'::DOUBLE) AS seconds,
       CASE WHEN w.ordinal IS NULL THEN s.value ELSE w.value END AS value,
       s.batch, s.rowid AS position
FROM sample_rows s
LEFT JOIN rewrite_rows w
  ON w.run_id = s.run_id AND w.metric_id = s.metric_id AND w.attempt = s.attempt AND w.step = s.step AND w.ordinal = 1
WHERE s.run_id = $run_id AND s.batch > $after AND s.batch <= $upto AND NOT s.late
