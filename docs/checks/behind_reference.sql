-- Runs whose loss has stayed more than 2 % above that of the run "reference" at the same steps, for 20 samples or more.
WITH pairs AS (
    SELECT h.run, h.name AS metric, h.step, h.value, r.value AS reference
    FROM history h
    JOIN history r ON r.run = 'reference' AND r.name = h.name AND r.step = h.step
    WHERE h.role = 'loss' AND h.run <> 'reference'
), good AS (
    SELECT run, metric, max(step) AS step FROM pairs WHERE value <= 1.02 * reference GROUP BY ALL
)
SELECT p.run, p.metric,
       min(p.step) AS step,                              -- where it began: the same in every pass while it lasts
       median(p.value / p.reference - 1) AS magnitude,
       arg_max(p.value, p.step) AS value,
       'up' AS direction,
       CASE WHEN count(*) >= 200 THEN 'S3' ELSE 'S2' END AS severity,
       count(*) AS samples                               -- any other column is kept in the evidence
FROM pairs p
LEFT JOIN good g ON g.run = p.run AND g.metric = p.metric
WHERE p.step > coalesce(g.step, -1)
GROUP BY p.run, p.metric
HAVING count(*) >= 20
