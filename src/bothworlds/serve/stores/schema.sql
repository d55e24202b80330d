-- One text for both databases: in SQLite, BYTEA is BLOB; in PostgreSQL, WITHOUT ROWID is left out.
CREATE TABLE facts (key TEXT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE numbers (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO numbers VALUES ('revision', 0), ('surface', 0), ('learner', 0), ('audit', 0);

-- The right to settle events: of one process at a time. "until" is a time of the database.
CREATE TABLE lease (id BIGINT PRIMARY KEY CHECK (id = 1), owner TEXT NOT NULL, fence BIGINT NOT NULL, until BIGINT NOT NULL);
INSERT INTO lease VALUES (1, '', 0, 0);

-- Without a name: a surface that was deleted, and whose events are being deleted.
CREATE TABLE surfaces (id BIGINT PRIMARY KEY, name TEXT UNIQUE, version BIGINT NOT NULL, body BYTEA NOT NULL);

-- Of a surface: the last number given to an event; how many events were deleted; of those that were too old, the latest
-- creation time and the largest number; the creation time up to which an event that is not stored may have been deleted.
CREATE TABLE logs (
    surface_id BIGINT PRIMARY KEY REFERENCES surfaces (id) ON DELETE CASCADE, last_number BIGINT NOT NULL,
    deleted BIGINT NOT NULL, deleted_until BIGINT NOT NULL, deleted_number BIGINT NOT NULL, closed_until BIGINT NOT NULL
);

-- "reset_number": events up to it are not part of the state. "erased_number": the largest whose content is gone.
CREATE TABLE learners (
    id BIGINT PRIMARY KEY, surface_id BIGINT NOT NULL REFERENCES surfaces (id) ON DELETE CASCADE, number BIGINT NOT NULL,
    reset_number BIGINT NOT NULL, erased_number BIGINT NOT NULL, deleted BOOLEAN NOT NULL, UNIQUE (surface_id, number)
);

-- Open events have a "due_at", settled ones a number. Of a deleted event, the id stays as a tombstone until its token has
-- expired, and the content until a snapshot of its learner covers it.
CREATE TABLE events (
    id BYTEA PRIMARY KEY, surface_id BIGINT NOT NULL, learner_id BIGINT NOT NULL REFERENCES learners (id) ON DELETE CASCADE,
    arm TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, late_until BIGINT NOT NULL, n BIGINT NOT NULL,
    listed BYTEA, context BYTEA, visitor BYTEA, counted BOOLEAN NOT NULL, shown BOOLEAN, clicks BIGINT NOT NULL, rewards BYTEA,
    final BOOLEAN NOT NULL, late BIGINT NOT NULL, due_at BIGINT, number BIGINT, settled_at BIGINT, settled_by TEXT NOT NULL,
    deleted BOOLEAN NOT NULL,
    CHECK ((number IS NULL) = (settled_at IS NULL)),
    CHECK ((number IS NULL) = (settled_by = '')),
    CHECK ((due_at IS NULL) = (number IS NOT NULL OR deleted)),
    CHECK (deleted OR listed IS NOT NULL)
);
CREATE UNIQUE INDEX events_by_number ON events (surface_id, number) WHERE number IS NOT NULL;
CREATE INDEX events_by_learner ON events (learner_id, number);
CREATE INDEX events_by_time ON events (surface_id, created_at);
CREATE INDEX events_open ON events (due_at, surface_id) WHERE due_at IS NOT NULL;
CREATE INDEX events_by_visitor ON events (visitor, created_at) WHERE visitor IS NOT NULL;
CREATE INDEX events_deleted ON events (late_until) WHERE deleted;

CREATE TABLE snapshots (
    learner_id BIGINT NOT NULL REFERENCES learners (id) ON DELETE CASCADE, number BIGINT NOT NULL, format TEXT NOT NULL,
    state BYTEA NOT NULL, PRIMARY KEY (learner_id, number)
);
CREATE TABLE policies (
    id TEXT PRIMARY KEY, learner_id BIGINT NOT NULL REFERENCES learners (id) ON DELETE CASCADE, at BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX policies_by_time ON policies (learner_id, at);

-- Totals of settled events, by the minute in which the list was drawn. The columns from "settled" to "finals" are sums over
-- the events that are compared; each of the last four counts events that are not.
CREATE TABLE minutes (
    surface_id BIGINT NOT NULL REFERENCES surfaces (id) ON DELETE CASCADE, minute BIGINT NOT NULL, segment TEXT NOT NULL,
    arm TEXT NOT NULL, settled BIGINT NOT NULL, shows BIGINT NOT NULL, clicks BIGINT NOT NULL, clicked BIGINT NOT NULL,
    squares BIGINT NOT NULL, late BIGINT NOT NULL, rewards BIGINT NOT NULL, reward_squares BIGINT NOT NULL,
    finals BIGINT NOT NULL, unconfirmed BIGINT NOT NULL, unconfirmed_clicked BIGINT NOT NULL, void BIGINT NOT NULL,
    uncounted BIGINT NOT NULL, PRIMARY KEY (surface_id, minute, segment, arm)
) WITHOUT ROWID;
CREATE TABLE visitor_hours (
    surface_id BIGINT NOT NULL REFERENCES surfaces (id) ON DELETE CASCADE, hour BIGINT NOT NULL, segment TEXT NOT NULL,
    arm TEXT NOT NULL, bucket BIGINT NOT NULL, pages BIGINT NOT NULL, clicks BIGINT NOT NULL, squares BIGINT NOT NULL,
    PRIMARY KEY (surface_id, hour, segment, arm, bucket)
) WITHOUT ROWID;

CREATE TABLE audit (id BIGINT PRIMARY KEY, surface_id BIGINT, body BYTEA NOT NULL);
CREATE INDEX audit_by_surface ON audit (surface_id, id);
CREATE TABLE keys (id TEXT PRIMARY KEY, body BYTEA NOT NULL);
