SELECT attempt, source, first_step, valid_until, parent, reason, started_at
FROM segment_rows
WHERE run_id = $run_id
ORDER BY attempt
