UPDATE track_rows
SET samples = t.samples, first_step = t.first_step, last_step = t.last_step, last_value = t.last_value
FROM tracks t
WHERE track_rows.run_id = $run_id AND track_rows.metric_id = t.metric_id AND track_rows.attempt = t.attempt
