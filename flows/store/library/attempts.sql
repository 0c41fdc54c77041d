-- The attempts of a run: where each began, how far it came, and how many of its steps were abandoned.
-- $run text = '%': the run (a LIKE pattern)
SELECT g.run, g.attempt, g.reason, g.first_step, max(s.step) AS reached, g.valid_until,
       count(DISTINCT s.step) FILTER (s.step >= g.valid_until) AS steps_abandoned, g.started_at
FROM segments g LEFT JOIN samples s ON s.run = g.run AND s.attempt = g.attempt
WHERE g.run LIKE $run
GROUP BY g.run, g.attempt, g.reason, g.first_step, g.valid_until, g.started_at
ORDER BY g.run, g.attempt
