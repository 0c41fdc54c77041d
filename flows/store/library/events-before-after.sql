-- A metric's median before and after each event of a run: what the change did.
-- $run text: the run
-- $name text: the metric
-- $reach number = 100: steps before and after that count
SELECT e.step, e.kind, e.note,
       median(h.value) FILTER (h.step < e.step) AS before,
       median(h.value) FILTER (h.step >= coalesce(e.end_step, e.step)) AS after,
       count(h.value) AS samples
FROM events e
LEFT JOIN history h ON h.run = e.run AND h.name = $name AND isfinite(h.value)
                   AND h.step >= e.step - $reach AND h.step < coalesce(e.end_step, e.step) + $reach
WHERE e.run = $run
GROUP BY e.event_id, e.step, e.kind, e.note
ORDER BY e.step, e.kind, e.note
