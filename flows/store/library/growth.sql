-- Rows that came each day.
-- $run text = '%': the run (a LIKE pattern)
SELECT b.appended_at::DATE AS day, r.run, sum(b.new_rows)::BIGINT AS new_rows, count(*) AS appends
FROM batch_rows b JOIN runs r ON r.run_id = b.run_id
WHERE r.run LIKE $run
GROUP BY ALL
ORDER BY day, r.run
