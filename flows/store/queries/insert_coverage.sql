INSERT INTO coverage (run, check_name, metric, reason, count, updated_at)
SELECT $run, check_name, metric, reason, count, $now FROM given
