-- a finding may move to another incident when a later one joins two
UPDATE findings SET incident_id = g.incident_id
FROM given g
WHERE findings.run = g.run AND findings.finding_id = g.finding_id
  AND findings.incident_id IS DISTINCT FROM g.incident_id AND g.incident_id IS NOT NULL
