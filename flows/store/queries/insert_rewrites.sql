INSERT INTO rewrite_rows (run_id, metric_id, attempt, step, value, ordinal)
SELECT $run_id::INTEGER, metric_id, attempt, step, value, ordinal FROM remembered
