-- The findings of one incident in the order in which they began, with their lag behind the first.
-- $id text: the incident (`watchkeeper incidents list` shows them)
SELECT metric, kind, direction, onset_step, onset_step - min(onset_step) OVER () AS lag, detected_step, magnitude, unit, detector
FROM findings
WHERE incident_id = $id
ORDER BY onset_step, detected_step, metric, detector
