-- Messages that did not get out, and why.
SELECT channel, run, transition, state, attempts, next_try_at, error, created_at
FROM deliveries
WHERE state <> 'delivered'
ORDER BY created_at, channel, run, transition
