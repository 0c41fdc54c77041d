INSERT INTO incidents (run, incident_id, attempt, severity, status, title, pattern, confidence, onset_step, detected_step,
                       resolved_step, severity_history, hypotheses, suggestions, opened_at, updated_at, state)
SELECT g.run, g.incident_id, g.attempt, g.severity, g.status, g.title, g.pattern, g.confidence, g.onset_step, g.detected_step,
       g.resolved_step, g.severity_history, g.hypotheses, g.suggestions, g.opened_at, g.updated_at,
       coalesce(g.state, CASE g.status WHEN 'open' THEN 'firing' ELSE g.status END)
FROM given g
WHERE NOT EXISTS (SELECT 1 FROM incidents i WHERE i.run = g.run AND i.incident_id = g.incident_id)
