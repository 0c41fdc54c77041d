-- firing, cooling (recovered, still open) or resolved; `status` goes on to say open or resolved
ALTER TABLE incidents ADD COLUMN state VARCHAR;
UPDATE incidents SET state = CASE status WHEN 'open' THEN 'firing' ELSE status END;

-- why a message that was written down waits at the door, and since when: a silence, quiet hours, a limit
ALTER TABLE deliveries ADD COLUMN held_by VARCHAR;
ALTER TABLE deliveries ADD COLUMN held_since TIMESTAMP;
