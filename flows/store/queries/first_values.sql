-- the value that stood first at the steps that were written again
SELECT metric_id, attempt, step, value AS first_value, true AS was_rewritten
FROM rewrite_rows
WHERE run_id = $run_id AND ordinal = 1 AND step BETWEEN $low AND $high
