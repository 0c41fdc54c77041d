-- One metric of two runs side by side, in parts of equal steps; `ratio` is the second over the first.
-- $run text: the first run
-- $other text: the second run
-- $name text: the metric
-- $width number = 100: steps a part
SELECT floor(step / $width) * $width AS from_step,
       median(value) FILTER (run = $run) AS first, median(value) FILTER (run = $other) AS second,
       median(value) FILTER (run = $other) / nullif(median(value) FILTER (run = $run), 0) AS ratio
FROM history
WHERE run IN ($run, $other) AND name = $name AND isfinite(value)
GROUP BY ALL
HAVING first IS NOT NULL AND second IS NOT NULL
ORDER BY from_step
