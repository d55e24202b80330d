-- version 1
CREATE TABLE facts (key TEXT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE numbers (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO numbers VALUES ('revision', 0), ('surface', 0), ('adjustment', 0), ('audit', 0);
CREATE TABLE surfaces (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, version BIGINT NOT NULL, body BYTEA NOT NULL);
CREATE TABLE segments (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, rounds BIGINT NOT NULL, revision BIGINT NOT NULL,
    PRIMARY KEY (surface_id, segment)
);
CREATE TABLE counters (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, item BIGINT NOT NULL, slot BIGINT NOT NULL,
    loss BIGINT NOT NULL, shown BIGINT NOT NULL, clicked BIGINT NOT NULL,
    PRIMARY KEY (surface_id, segment, item, slot),
    CONSTRAINT counters_within_bounds CHECK (loss BETWEEN -4611686018427387904 AND 4611686018427387904)
);
CREATE TABLE events (
    id BYTEA PRIMARY KEY, surface_id BIGINT NOT NULL REFERENCES surfaces (id), segment TEXT NOT NULL, arm TEXT NOT NULL,
    policy_id TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, late_until BIGINT NOT NULL,
    placements BYTEA NOT NULL, learn BIGINT NOT NULL, clicks BIGINT NOT NULL, settled_at BIGINT,
    settled_by TEXT NOT NULL, late BIGINT NOT NULL
);
CREATE INDEX events_open ON events (expires_at) WHERE settled_at IS NULL;
CREATE INDEX events_by_time ON events (surface_id, created_at);
CREATE TABLE adjustments (
    id BIGINT PRIMARY KEY, surface_id BIGINT NOT NULL REFERENCES surfaces (id), segment TEXT NOT NULL, at BIGINT NOT NULL,
    actor TEXT NOT NULL, reason TEXT NOT NULL, rounds BIGINT NOT NULL, cells BYTEA NOT NULL
);
CREATE TABLE audit (id BIGINT PRIMARY KEY, surface_id BIGINT, body BYTEA NOT NULL);
CREATE INDEX audit_by_surface ON audit (surface_id, id);
CREATE TABLE api_keys (id TEXT PRIMARY KEY, body BYTEA NOT NULL);
CREATE TABLE policies (
    id TEXT PRIMARY KEY, surface_id BIGINT NOT NULL, segment TEXT NOT NULL, at BIGINT NOT NULL, body BYTEA NOT NULL
);
CREATE INDEX policies_by_time ON policies (surface_id, segment, at);

-- version 2: totals per minute, so that reports need not read events
CREATE TABLE history (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, arm TEXT NOT NULL, minute BIGINT NOT NULL,
    events BIGINT NOT NULL, settled BIGINT NOT NULL, shows BIGINT NOT NULL, clicks BIGINT NOT NULL,
    clicked BIGINT NOT NULL, squares BIGINT NOT NULL, late BIGINT NOT NULL,
    PRIMARY KEY (surface_id, minute, segment, arm)
);

-- version 3: pinned slots of events, and an index of resets
ALTER TABLE events ADD COLUMN pinned BIGINT;
CREATE INDEX adjustments_resets ON adjustments (surface_id, segment, at) WHERE reason = 'reset';

-- version 4: items that could not be shown, which the event itself charges
ALTER TABLE events ADD COLUMN eligibility BYTEA;

-- version 5: counters by the time of the decision, and numbers of segments
CREATE TABLE blocks (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, start BIGINT NOT NULL, until BIGINT NOT NULL, revision BIGINT NOT NULL,
    rounds BIGINT NOT NULL, cells BYTEA NOT NULL,
    spread BIGINT NOT NULL, difference BIGINT NOT NULL, variance BIGINT NOT NULL,
    PRIMARY KEY (surface_id, segment, start, until, revision)
);
CREATE TABLE segment_numbers (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, name TEXT NOT NULL, value BIGINT NOT NULL,
    PRIMARY KEY (surface_id, segment, name)
);
INSERT INTO numbers VALUES ('cut', 0);
ALTER TABLE adjustments ADD COLUMN removed BYTEA;
ALTER TABLE events ADD COLUMN mixture BYTEA;

-- version 6: visitors of events, learners that events are counted for, totals by buckets of visitors, rewards in units of
-- 2^-20, deleted events and what stands in for them, predicted losses and how many settled
-- events subtract each version of them
ALTER TABLE events ADD COLUMN visitor BYTEA;
ALTER TABLE events ADD COLUMN learner BIGINT;
CREATE INDEX events_by_visitor ON events (visitor, created_at) WHERE visitor IS NOT NULL;
CREATE TABLE visitor_sums (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, arm TEXT NOT NULL, hour BIGINT NOT NULL, bucket BIGINT NOT NULL,
    pages BIGINT NOT NULL, clicks BIGINT NOT NULL, squares BIGINT NOT NULL,
    PRIMARY KEY (surface_id, hour, segment, arm, bucket)
);
ALTER TABLE events ADD COLUMN rewards BYTEA;
ALTER TABLE history ADD COLUMN rewards BIGINT NOT NULL DEFAULT 0;
ALTER TABLE history ADD COLUMN reward_squares BIGINT NOT NULL DEFAULT 0;
CREATE TABLE checkpoints (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, start BIGINT NOT NULL, until BIGINT NOT NULL,
    body BYTEA NOT NULL, signature BYTEA NOT NULL,
    PRIMARY KEY (surface_id, segment, start, until)
);
CREATE TABLE deleted_events (
    id BYTEA PRIMARY KEY, surface_id BIGINT NOT NULL, segment TEXT NOT NULL, created_at BIGINT NOT NULL,
    late_until BIGINT NOT NULL
);
CREATE INDEX deleted_events_by_time ON deleted_events (surface_id, created_at);
CREATE TABLE deleted_segments (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, deleted_at BIGINT NOT NULL,
    PRIMARY KEY (surface_id, segment)
);
INSERT INTO numbers VALUES ('checkpoint', 0);
CREATE TABLE prediction_versions (
    surface_id BIGINT NOT NULL, segment TEXT NOT NULL, number BIGINT NOT NULL, settled BIGINT NOT NULL, body BYTEA NOT NULL,
    PRIMARY KEY (surface_id, segment, number)
);
ALTER TABLE events ADD COLUMN prediction BYTEA;
ALTER TABLE adjustments ADD COLUMN settled BYTEA;
