-- Every run: how far it is, how many metrics, what is open, when its last rows came.
SELECT r.run, max(m.last_step) AS last_step, count(m.name) AS metrics, coalesce(sum(m.samples), 0)::BIGINT AS samples,
       (SELECT count(*) FROM incidents i WHERE i.run = r.run AND i.status <> 'resolved' AND i.severity >= 2) AS open_incidents,
       r.pulled_at, r.judged_at
FROM runs r LEFT JOIN metrics m ON m.run = r.run
GROUP BY r.run, r.pulled_at, r.judged_at
ORDER BY r.run
