-- frame `updates` holds the last value of steps that were written again
UPDATE sample_rows SET value = u.value
FROM updates u
WHERE sample_rows.run_id = $run_id AND sample_rows.step BETWEEN $low AND $high
  AND sample_rows.metric_id = u.metric_id AND sample_rows.attempt = u.attempt AND sample_rows.step = u.step
