-- frame `given`: turn counts from 1 inside it, and goes on from the last one that is stored
INSERT INTO operations (turn, run, incident_id, kind, metric, pattern, until_time, until_step, step, severity, findings,
                        silent, who, why, done_at)
SELECT g.turn + (SELECT coalesce(max(o.turn), 0) FROM operations o), g.run, g.incident_id, g.kind, g.metric, g.pattern,
       g.until_time, g.until_step, g.step, g.severity, g.findings, g.silent, g.who, g.why, g.done_at
FROM given g
