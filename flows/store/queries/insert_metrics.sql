INSERT INTO metric_rows (run_id, metric_id, name, role, unit, healthy, group_name)
SELECT $run_id::INTEGER, metric_id, name, role, unit, healthy, group_name FROM fresh
