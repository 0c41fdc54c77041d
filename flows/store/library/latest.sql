-- Where the metrics of a run stand: value, and how far back its newest step is.
-- $run text: the run
-- $role text = '%': only this role (a LIKE pattern)
SELECT l.name, l.role, l.step, l.value, max(l.step) OVER () - l.step AS steps_behind
FROM latest l
WHERE l.run = $run AND l.role LIKE $role
ORDER BY (l.role = 'other'), l.role, l.name
