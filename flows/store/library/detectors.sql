-- Each detector: how often it spoke, how loud, and what people said of its incidents.
SELECT f.detector, count(*) AS findings, count(DISTINCT f.incident_id) AS incidents, max(f.severity) AS highest,
       count(DISTINCT o.incident_id) FILTER (o.kind IN ('right', 'known')) AS right,
       count(DISTINCT o.incident_id) FILTER (o.kind = 'wrong') AS wrong
FROM findings f
LEFT JOIN operations o ON o.run = f.run AND o.incident_id = f.incident_id AND o.kind IN ('right', 'wrong', 'known')
GROUP BY f.detector
ORDER BY findings DESC, f.detector
