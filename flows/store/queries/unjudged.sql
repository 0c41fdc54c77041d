-- what the judge has not seen, late rows left out; one table and no join, so the rows come in the order of their insertion
SELECT metric_id, attempt, step, logged_at, value
FROM sample_rows
WHERE run_id = $run_id AND batch > $after AND batch <= $upto AND NOT late
