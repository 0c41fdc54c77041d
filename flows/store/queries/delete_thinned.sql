-- of each metric's samples in a step range, in parts of 4 * keep samples: all but the first, lowest, highest and last of a part
-- and what is no number; a metric with too few samples for one part stays whole
DELETE FROM sample_rows
WHERE run_id = $run_id AND attempt = $attempt AND rowid IN (
    SELECT place FROM (
        SELECT rowid AS place, value, step, part, count(*) OVER (PARTITION BY metric_id, part) AS size,
               row_number() OVER (PARTITION BY metric_id, part ORDER BY step) AS nth,
               row_number() OVER (PARTITION BY metric_id, part ORDER BY value, step) AS low,
               row_number() OVER (PARTITION BY metric_id, part ORDER BY value DESC, step) AS high
        FROM (
            SELECT rowid, metric_id, step, value,
                   (row_number() OVER (PARTITION BY metric_id ORDER BY step) - 1) // (4 * $keep) AS part
            FROM sample_rows
            WHERE run_id = $run_id AND attempt = $attempt AND step >= $first AND step < $last AND batch <= $batch AND isfinite(value)
        )
    )
    WHERE size > 4 AND nth > 1 AND nth < size AND low > 1 AND high > 1
)
