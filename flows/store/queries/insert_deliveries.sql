INSERT INTO deliveries (delivery_id, run, incident_id, transition, channel, message, message_id, state, attempts,
                        next_try_at, sending_since, delivered_at, repeats, error, created_at)
SELECT g.delivery_id, g.run, g.incident_id, g.transition, g.channel, g.message, g.message_id, 'pending', 0,
       g.next_try_at, NULL, NULL, 0, NULL, g.created_at
FROM given g
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.delivery_id = g.delivery_id)
