-- resolved by hand; an incident that is over already stays as it ended
UPDATE incidents SET status = 'resolved', state = 'resolved', resolved_step = $step, updated_at = $now
WHERE run = $run AND incident_id = $incident AND status = 'open'
