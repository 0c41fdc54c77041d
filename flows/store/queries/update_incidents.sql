UPDATE incidents
SET attempt = g.attempt, severity = g.severity, status = g.status, title = g.title, pattern = g.pattern,
    confidence = g.confidence, onset_step = g.onset_step, detected_step = g.detected_step, resolved_step = g.resolved_step,
    severity_history = g.severity_history, hypotheses = g.hypotheses, suggestions = g.suggestions, updated_at = g.updated_at,
    state = coalesce(g.state, CASE g.status WHEN 'open' THEN 'firing' ELSE g.status END)
FROM given g
WHERE incidents.run = g.run AND incidents.incident_id = g.incident_id
