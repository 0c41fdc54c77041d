-- what people did to incidents, and what was said of them, for ever: rows are added, none is changed
CREATE TABLE operations (
    turn BIGINT NOT NULL,
    run VARCHAR NOT NULL,
    incident_id VARCHAR,
    kind VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    pattern VARCHAR NOT NULL,
    until_time TIMESTAMP,
    until_step DOUBLE,
    step DOUBLE,
    severity INTEGER,
    findings INTEGER,
    silent BOOLEAN NOT NULL,
    who VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    done_at TIMESTAMP NOT NULL
);
