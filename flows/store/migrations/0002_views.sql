-- What people read: names instead of ids.

CREATE VIEW segments AS
SELECT r.run, g.attempt, g.source, g.first_step, g.valid_until, g.parent, g.reason, g.started_at
FROM segment_rows g JOIN runs r ON r.run_id = g.run_id;

CREATE VIEW metrics AS
SELECT r.run, m.name, m.role, m.unit, m.healthy, m.group_name,
       coalesce(sum(t.samples), 0)::BIGINT AS samples,
       min(t.first_step) AS first_step,
       arg_max(t.last_step, t.attempt) AS last_step,
       arg_max_null(t.last_value, t.attempt) AS last_value
FROM metric_rows m
JOIN runs r ON r.run_id = m.run_id
LEFT JOIN track_rows t ON t.run_id = m.run_id AND t.metric_id = m.metric_id
GROUP BY r.run, m.name, m.role, m.unit, m.healthy, m.group_name;

CREATE VIEW samples AS
SELECT r.run, m.name, m.role, s.attempt, s.step, s.logged_at, s.value, s.late, s.batch
FROM sample_rows s
JOIN metric_rows m ON m.run_id = s.run_id AND m.metric_id = s.metric_id
JOIN runs r ON r.run_id = s.run_id;

CREATE VIEW rewritten AS
SELECT r.run, m.name, w.attempt, w.step, arg_min_null(w.value, w.ordinal) AS first_value, count(*) - 1 AS times
FROM rewrite_rows w
JOIN metric_rows m ON m.run_id = w.run_id AND m.metric_id = w.metric_id
JOIN runs r ON r.run_id = w.run_id
GROUP BY r.run, m.name, w.attempt, w.step;

-- the run as it stands: of each attempt only the steps before the first step of any later one
CREATE VIEW history AS
SELECT r.run, m.name, m.role, s.attempt, s.step, s.logged_at, s.value
FROM sample_rows s
JOIN segment_rows g ON g.run_id = s.run_id AND g.attempt = s.attempt
JOIN metric_rows m ON m.run_id = s.run_id AND m.metric_id = s.metric_id
JOIN runs r ON r.run_id = s.run_id
WHERE g.valid_until IS NULL OR s.step < g.valid_until;

CREATE VIEW latest AS
SELECT run, name, role, max(step) AS step, arg_max_null(logged_at, step) AS logged_at, arg_max_null(value, step) AS value
FROM history
GROUP BY run, name, role;
