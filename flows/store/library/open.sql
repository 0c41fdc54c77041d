-- Incidents that are not resolved, the loudest first.
-- $severity number = 1: from this severity on (0 to 4)
SELECT run, incident_id, 'S' || severity AS severity, status, onset_step, detected_step, title
FROM incidents
WHERE status <> 'resolved' AND severity >= $severity
ORDER BY incidents.severity DESC, onset_step, incident_id
