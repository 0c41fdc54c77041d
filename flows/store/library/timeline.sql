-- What happened to a run, by step: attempts, events, incidents, and what people said and did.
-- $run text: the run
SELECT step, what, told FROM (
    SELECT first_step AS step, 1 AS rank, 'attempt' AS what, attempt || ': ' || reason AS told
    FROM segments WHERE run = $run
    UNION ALL
    SELECT step, 2, 'event', kind || CASE WHEN note = '' THEN '' ELSE ': ' || note END FROM events WHERE run = $run
    UNION ALL
    SELECT onset_step, 3, 'incident began', 'S' || severity || ' ' || title FROM incidents WHERE run = $run
    UNION ALL
    SELECT resolved_step, 4, 'incident resolved', 'S' || severity || ' ' || title
    FROM incidents WHERE run = $run AND resolved_step IS NOT NULL
    UNION ALL
    SELECT step, 5, kind, who || CASE WHEN why = '' THEN '' ELSE ': ' || why END
    FROM operations
    WHERE run = $run AND step IS NOT NULL AND kind IN ('ack', 'snooze', 'resolve', 'note', 'right', 'wrong', 'known')
)
ORDER BY step, rank, told
