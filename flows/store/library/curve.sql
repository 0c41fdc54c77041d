-- A metric over the whole run in a few lines: lowest, median and highest of each part.
-- $run text: the run
-- $name text: the metric
-- $parts number = 40: into how many parts the steps are cut
WITH mine AS (SELECT step, value FROM history WHERE run = $run AND name = $name),
     span AS (SELECT min(step) AS low, greatest(max(step) - min(step), 1e-9) AS width FROM mine)
SELECT min(step) AS from_step, max(step) AS to_step, count(*) AS samples,
       min(value) FILTER (isfinite(value)) AS lowest, median(value) FILTER (isfinite(value)) AS median,
       max(value) FILTER (isfinite(value)) AS highest, count(*) FILTER (NOT isfinite(value)) AS no_numbers
FROM mine, span
GROUP BY least(floor((step - low) / width * $parts), $parts - 1)
ORDER BY from_step
