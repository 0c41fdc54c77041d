-- How long after its onset each incident was first seen, and how long it lasted, in steps.
-- $severity number = 2: from this severity on (0 to 4)
SELECT run, incident_id, 'S' || severity AS severity, pattern, onset_step, detected_step - onset_step AS steps_to_see,
       resolved_step - onset_step AS steps_it_lasted
FROM incidents
WHERE incidents.severity >= $severity
ORDER BY run, onset_step, incident_id
