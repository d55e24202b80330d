-- version 1
CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO numbers VALUES ('revision', 0), ('surface', 0), ('adjustment', 0), ('audit', 0);
CREATE TABLE surfaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE segments (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, rounds INTEGER NOT NULL, revision INTEGER NOT NULL,
    PRIMARY KEY (surface_id, segment)
) WITHOUT ROWID;
CREATE TABLE counters (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, item INTEGER NOT NULL, slot INTEGER NOT NULL,
    loss INTEGER NOT NULL, shown INTEGER NOT NULL, clicked INTEGER NOT NULL,
    PRIMARY KEY (surface_id, segment, item, slot),
    CONSTRAINT counters_within_bounds CHECK (loss BETWEEN -4611686018427387904 AND 4611686018427387904)
) WITHOUT ROWID;
CREATE TABLE events (
    id BLOB NOT NULL UNIQUE, surface_id INTEGER NOT NULL REFERENCES surfaces (id), segment TEXT NOT NULL, arm TEXT NOT NULL,
    policy_id TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, late_until INTEGER NOT NULL,
    placements BLOB NOT NULL, learn INTEGER NOT NULL, clicks INTEGER NOT NULL, settled_at INTEGER,
    settled_by TEXT NOT NULL, late INTEGER NOT NULL
);
CREATE INDEX events_open ON events (expires_at) WHERE settled_at IS NULL;
CREATE INDEX events_by_time ON events (surface_id, created_at);
CREATE TABLE adjustments (
    id INTEGER PRIMARY KEY, surface_id INTEGER NOT NULL REFERENCES surfaces (id), segment TEXT NOT NULL, at INTEGER NOT NULL,
    actor TEXT NOT NULL, reason TEXT NOT NULL, rounds INTEGER NOT NULL, cells BLOB NOT NULL
);
CREATE TABLE audit (id INTEGER PRIMARY KEY, surface_id INTEGER, body BLOB NOT NULL);
CREATE INDEX audit_by_surface ON audit (surface_id, id);
CREATE TABLE api_keys (id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE policies (
    id TEXT PRIMARY KEY, surface_id INTEGER NOT NULL, segment TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX policies_by_time ON policies (surface_id, segment, at);

-- version 2: totals per minute, so that reports need not read events
CREATE TABLE history (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, arm TEXT NOT NULL, minute INTEGER NOT NULL,
    events INTEGER NOT NULL, settled INTEGER NOT NULL, shows INTEGER NOT NULL, clicks INTEGER NOT NULL,
    clicked INTEGER NOT NULL, squares INTEGER NOT NULL, late INTEGER NOT NULL,
    PRIMARY KEY (surface_id, minute, segment, arm)
) WITHOUT ROWID;

-- version 3: pinned slots of events, and an index of resets
ALTER TABLE events ADD COLUMN pinned INTEGER;
CREATE INDEX adjustments_resets ON adjustments (surface_id, segment, at) WHERE reason = 'reset';

-- version 4: items that could not be shown, which the event itself charges
ALTER TABLE events ADD COLUMN eligibility BLOB;

-- version 5: counters by the time of the decision, and numbers of segments
CREATE TABLE blocks (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, start INTEGER NOT NULL, until INTEGER NOT NULL, revision INTEGER NOT NULL,
    rounds INTEGER NOT NULL, cells BLOB NOT NULL,
    spread INTEGER NOT NULL, difference INTEGER NOT NULL, variance INTEGER NOT NULL,
    PRIMARY KEY (surface_id, segment, start, until, revision)
);
CREATE TABLE segment_numbers (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL,
    PRIMARY KEY (surface_id, segment, name)
) WITHOUT ROWID;
INSERT INTO numbers VALUES ('cut', 0);
ALTER TABLE adjustments ADD COLUMN removed BLOB;
ALTER TABLE events ADD COLUMN mixture BLOB;

-- version 6: visitors of events, learners that events are counted for, totals by buckets of visitors, rewards in units of
-- 2^-20, deleted events and what stands in for them, predicted losses and how many settled
-- events subtract each version of them
ALTER TABLE events ADD COLUMN visitor BLOB;
ALTER TABLE events ADD COLUMN learner INTEGER;
CREATE INDEX events_by_visitor ON events (visitor, created_at) WHERE visitor IS NOT NULL;
CREATE TABLE visitor_sums (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, arm TEXT NOT NULL, hour INTEGER NOT NULL, bucket INTEGER NOT NULL,
    pages INTEGER NOT NULL, clicks INTEGER NOT NULL, squares INTEGER NOT NULL,
    PRIMARY KEY (surface_id, hour, segment, arm, bucket)
) WITHOUT ROWID;
ALTER TABLE events ADD COLUMN rewards BLOB;
ALTER TABLE history ADD COLUMN rewards INTEGER NOT NULL DEFAULT 0;
ALTER TABLE history ADD COLUMN reward_squares INTEGER NOT NULL DEFAULT 0;
CREATE TABLE checkpoints (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, start INTEGER NOT NULL, until INTEGER NOT NULL,
    body BLOB NOT NULL, signature BLOB NOT NULL,
    PRIMARY KEY (surface_id, segment, start, until)
);
CREATE TABLE deleted_events (
    id BLOB NOT NULL PRIMARY KEY, surface_id INTEGER NOT NULL, segment TEXT NOT NULL, created_at INTEGER NOT NULL,
    late_until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX deleted_events_by_time ON deleted_events (surface_id, created_at);
CREATE TABLE deleted_segments (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, deleted_at INTEGER NOT NULL,
    PRIMARY KEY (surface_id, segment)
) WITHOUT ROWID;
INSERT INTO numbers VALUES ('checkpoint', 0);
CREATE TABLE prediction_versions (
    surface_id INTEGER NOT NULL, segment TEXT NOT NULL, number INTEGER NOT NULL, settled INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (surface_id, segment, number)
);
ALTER TABLE events ADD COLUMN prediction BLOB;
ALTER TABLE adjustments ADD COLUMN settled BLOB;
