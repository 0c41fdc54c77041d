-- Only what DuckLake accepts: no keys, constraints beyond NOT NULL, sequences, indexes or defaults.
-- Times are naive UTC. Tables whose names end in _rows hold ids; 0002 gives their readable views.

CREATE TABLE runs (
    run_id INTEGER NOT NULL,
    run VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    format VARCHAR NOT NULL,
    step_key VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL,
    pulled_at TIMESTAMP,
    judged_at TIMESTAMP,
    judged_batch BIGINT NOT NULL
);

CREATE TABLE segment_rows (
    run_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    source VARCHAR NOT NULL,
    first_step DOUBLE NOT NULL,
    valid_until DOUBLE,
    parent INTEGER,
    reason VARCHAR NOT NULL,
    started_at TIMESTAMP
);

CREATE TABLE metric_rows (
    run_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    unit VARCHAR NOT NULL,
    healthy VARCHAR NOT NULL,
    group_name VARCHAR NOT NULL
);

-- one row for each metric and attempt, kept current by every append: last_step is the mark above which a row must be new
CREATE TABLE track_rows (
    run_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    samples BIGINT NOT NULL,
    first_step DOUBLE NOT NULL,
    last_step DOUBLE NOT NULL,
    last_value DOUBLE
);

CREATE TABLE sample_rows (
    run_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step DOUBLE NOT NULL,
    logged_at TIMESTAMP,
    value DOUBLE,
    late BOOLEAN NOT NULL,
    batch BIGINT NOT NULL
);

-- every distinct value of a step that was written again with another one; ordinal 1 is the first, which the judge saw
CREATE TABLE rewrite_rows (
    run_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step DOUBLE NOT NULL,
    value DOUBLE,
    ordinal INTEGER NOT NULL
);

CREATE TABLE batch_rows (
    run_id INTEGER NOT NULL,
    batch BIGINT NOT NULL,
    new_rows BIGINT NOT NULL,
    appended_at TIMESTAMP NOT NULL
);

CREATE TABLE pull_states (
    run_id INTEGER NOT NULL,
    cursor VARCHAR NOT NULL,
    tracker VARCHAR NOT NULL
);

CREATE TABLE judge_states (
    run_id INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    state BLOB NOT NULL
);

CREATE TABLE judge_run_states (
    run_id INTEGER NOT NULL,
    state VARCHAR NOT NULL
);

CREATE TABLE events (
    run VARCHAR NOT NULL,
    event_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    step DOUBLE NOT NULL,
    end_step DOUBLE,
    note VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    recorded_at TIMESTAMP NOT NULL
);

CREATE TABLE findings (
    run VARCHAR NOT NULL,
    finding_id VARCHAR NOT NULL,
    incident_id VARCHAR,
    attempt INTEGER NOT NULL,
    detector VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    direction VARCHAR NOT NULL,
    onset_step DOUBLE NOT NULL,
    detected_step DOUBLE NOT NULL,
    magnitude DOUBLE,
    unit VARCHAR NOT NULL,
    severity INTEGER NOT NULL,
    episode VARCHAR,
    evidence VARCHAR NOT NULL,
    recorded_at TIMESTAMP NOT NULL
);

CREATE TABLE incidents (
    run VARCHAR NOT NULL,
    incident_id VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    severity INTEGER NOT NULL,
    status VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    pattern VARCHAR NOT NULL,
    confidence DOUBLE NOT NULL,
    onset_step DOUBLE NOT NULL,
    detected_step DOUBLE NOT NULL,
    resolved_step DOUBLE,
    severity_history VARCHAR NOT NULL,
    hypotheses VARCHAR NOT NULL,
    suggestions VARCHAR NOT NULL,
    opened_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL
);

-- the outbox: sending_since is set before a message leaves and cleared by its receipt, so one left by a crash is a repeat
CREATE TABLE deliveries (
    delivery_id VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    incident_id VARCHAR,
    transition VARCHAR NOT NULL,
    channel VARCHAR NOT NULL,
    message VARCHAR NOT NULL,
    message_id VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    attempts INTEGER NOT NULL,
    next_try_at TIMESTAMP,
    sending_since TIMESTAMP,
    delivered_at TIMESTAMP,
    repeats INTEGER NOT NULL,
    error VARCHAR,
    created_at TIMESTAMP NOT NULL
);

CREATE TABLE expectations (
    run VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    recorded_at TIMESTAMP NOT NULL,
    body VARCHAR NOT NULL
);

CREATE TABLE coverage (
    run VARCHAR NOT NULL,
    check_name VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    count BIGINT NOT NULL,
    updated_at TIMESTAMP NOT NULL
);

CREATE TABLE leases (
    run VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    token VARCHAR NOT NULL,
    host VARCHAR NOT NULL,
    machine VARCHAR NOT NULL,
    pid BIGINT NOT NULL,
    pid_started VARCHAR NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
