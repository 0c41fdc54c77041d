-- which steps of which attempt were thinned by the rule of the owner: what was left out, never comes back
CREATE TABLE thinned_rows (
    run_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    first_step DOUBLE NOT NULL,
    last_step DOUBLE NOT NULL,
    keep_one_of INTEGER NOT NULL,
    removed BIGINT NOT NULL,
    thinned_at TIMESTAMP NOT NULL
);

CREATE VIEW thinned AS
SELECT r.run, t.attempt, t.first_step, t.last_step, t.keep_one_of, t.removed, t.thinned_at
FROM thinned_rows t JOIN runs r ON r.run_id = t.run_id;
