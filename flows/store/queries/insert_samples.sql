-- frame `fresh` holds rows that are known to be new, in the order in which the run wrote them
INSERT INTO sample_rows (run_id, metric_id, attempt, step, logged_at, value, late, batch)
SELECT $run_id::INTEGER, metric_id, attempt, step, logged_at, value, late, $batch::BIGINT FROM fresh
