-- the log of a run's incidents, or of all, with every mute: whose run is a shell pattern
SELECT * FROM operations
WHERE $run IS NULL OR run = $run OR kind IN ('mute', 'unmute')
ORDER BY turn
