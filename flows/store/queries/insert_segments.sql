INSERT INTO segment_rows (run_id, attempt, source, first_step, valid_until, parent, reason, started_at)
SELECT $run_id::INTEGER, attempt, source, first_step, valid_until, parent, reason, started_at FROM given
