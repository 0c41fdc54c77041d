INSERT INTO track_rows (run_id, metric_id, attempt, samples, first_step, last_step, last_value)
SELECT $run_id::INTEGER, t.metric_id, t.attempt, t.samples, t.first_step, t.last_step, t.last_value
FROM tracks t
WHERE NOT EXISTS (
    SELECT 1 FROM track_rows o WHERE o.run_id = $run_id AND o.metric_id = t.metric_id AND o.attempt = t.attempt
)
