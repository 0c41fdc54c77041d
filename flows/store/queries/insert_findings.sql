-- frame `given`; a finding that is stored already stays as it was said
INSERT INTO findings (run, finding_id, incident_id, attempt, detector, version, parameters, kind, metric, role, direction,
                      onset_step, detected_step, magnitude, unit, severity, episode, evidence, recorded_at)
SELECT g.run, g.finding_id, g.incident_id, g.attempt, g.detector, g.version, g.parameters, g.kind, g.metric, g.role, g.direction,
       g.onset_step, g.detected_step, g.magnitude, g.unit, g.severity, g.episode, g.evidence, g.recorded_at
FROM given g
WHERE NOT EXISTS (SELECT 1 FROM findings f WHERE f.run = g.run AND f.finding_id = g.finding_id)
