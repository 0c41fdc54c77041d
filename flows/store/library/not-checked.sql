-- What was not checked, and why.
-- $run text = '%': the run (a LIKE pattern)
SELECT run, check_name, reason, count(*) AS metrics, min(metric) AS such_as
FROM coverage
WHERE run LIKE $run AND reason <> 'checked'
GROUP BY ALL
ORDER BY run, metrics DESC, check_name, reason
