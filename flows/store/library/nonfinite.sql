-- Metrics with values that are no numbers: how many, and where first and last.
-- $run text = '%': the run (a LIKE pattern)
SELECT run, name, count(*) FILTER (isnan(value)) AS nan, count(*) FILTER (isinf(value)) AS infinite,
       min(step) AS first_step, max(step) AS last_step
FROM samples
WHERE run LIKE $run AND NOT isfinite(value)
GROUP BY ALL
ORDER BY run, first_step, name
