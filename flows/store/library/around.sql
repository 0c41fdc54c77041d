-- Every sample of a metric around a step, abandoned attempts too.
-- $run text: the run
-- $name text: the metric
-- $step number: the step
-- $reach number = 20: how many steps before and after
SELECT step, attempt, value, logged_at
FROM samples
WHERE run = $run AND name = $name AND step BETWEEN $step - $reach AND $step + $reach
ORDER BY step, attempt
