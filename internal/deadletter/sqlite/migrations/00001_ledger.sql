-- Times are microseconds since 1970, UTC. Keys, values and digests are blobs, where null is no key and not an empty one.

-- +goose Up

-- The ledger itself: one row.
CREATE TABLE meta (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    epoch           INTEGER NOT NULL,
    fence           INTEGER NOT NULL, -- the last one given in this epoch
    compatible_from INTEGER NOT NULL  -- the oldest version of this schema that may go on with it
) STRICT;
INSERT INTO meta (one, epoch, fence, compatible_from) VALUES (1, 1, 0, 1);

-- Each incarnation of each dead-letter topic.
CREATE TABLE topics (
    no       INTEGER PRIMARY KEY,
    topic_id BLOB NOT NULL,
    name     TEXT NOT NULL,
    UNIQUE (topic_id, name)
) STRICT;

-- How far each partition is indexed.
CREATE TABLE positions (
    topic            INTEGER NOT NULL REFERENCES topics (no),
    record_partition INTEGER NOT NULL,
    next             INTEGER NOT NULL,
    lost             INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, record_partition)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: the number of a letter that is purged is never given again.
CREATE TABLE letters (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    topic             INTEGER NOT NULL REFERENCES topics (no),
    record_partition  INTEGER NOT NULL,
    record_offset     INTEGER NOT NULL,
    message_id        TEXT NOT NULL,
    record_key        BLOB,
    key_hash          INTEGER NOT NULL,
    origin            TEXT NOT NULL,
    origin_partition  INTEGER NOT NULL,
    origin_offset     INTEGER NOT NULL,
    origin_partitions INTEGER NOT NULL,
    origin_timestamp  INTEGER,
    consumer_group    TEXT NOT NULL,
    reason            TEXT NOT NULL,
    error_type        TEXT NOT NULL,
    error_text        TEXT NOT NULL,
    fingerprint       TEXT NOT NULL,
    label             TEXT NOT NULL,
    attempt           INTEGER NOT NULL,
    deliveries        INTEGER NOT NULL,
    replay_id         TEXT NOT NULL,
    replay_count      INTEGER NOT NULL,
    failed_at         INTEGER,
    dead_at           INTEGER NOT NULL,
    indexed_at        INTEGER NOT NULL,
    size              INTEGER NOT NULL,
    digest            BLOB NOT NULL,
    pointer           INTEGER NOT NULL,
    kept              INTEGER NOT NULL,
    state             TEXT NOT NULL DEFAULT 'dead',
    state_at          INTEGER NOT NULL,
    note              TEXT NOT NULL DEFAULT '',
    -- The current claim, or the last one.
    job               TEXT NOT NULL DEFAULT '',
    owner             TEXT NOT NULL DEFAULT '',
    fence_epoch       INTEGER NOT NULL DEFAULT 0,
    fence_n           INTEGER NOT NULL DEFAULT 0,
    claimed_until     INTEGER,
    claim_count       INTEGER NOT NULL DEFAULT 0,
    target_topic      TEXT NOT NULL DEFAULT '',
    target_partition  INTEGER NOT NULL DEFAULT 0,
    target_offset     INTEGER NOT NULL DEFAULT -1,
    copy_topic        TEXT NOT NULL DEFAULT '',
    copy_partition    INTEGER NOT NULL DEFAULT 0,
    copy_offset       INTEGER NOT NULL DEFAULT -1
) STRICT;
CREATE UNIQUE INDEX letters_place ON letters (topic, record_partition, record_offset);
CREATE INDEX letters_message ON letters (message_id);
CREATE INDEX letters_key ON letters (key_hash);
CREATE INDEX letters_dead_at ON letters (dead_at);
CREATE INDEX letters_state ON letters (state, dead_at);
CREATE INDEX letters_error ON letters (error_type, dead_at);
CREATE INDEX letters_claimed ON letters (job) WHERE state = 'claimed';
CREATE INDEX letters_replayed ON letters (id) WHERE state = 'replayed';
CREATE INDEX letters_fleeting ON letters (topic, record_partition, record_offset) WHERE state = 'dead' AND kept = 0;
CREATE INDEX letters_came_back ON letters (replay_id, message_id) WHERE replay_id <> '';

CREATE TABLE payloads (
    letter     INTEGER PRIMARY KEY,
    record_key BLOB,
    value      BLOB,
    headers    BLOB NOT NULL
) STRICT;

CREATE TABLE jobs (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    request     TEXT UNIQUE, -- null is never the same
    actor       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    source      TEXT NOT NULL,
    rate        REAL NOT NULL,
    destination TEXT NOT NULL,
    forced      INTEGER NOT NULL,
    edit        TEXT, -- JSON
    reply_topic TEXT,
    reply_key   BLOB,
    state       TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER,
    replied_at  INTEGER,
    total       INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    skipped     INTEGER NOT NULL DEFAULT 0,
    first_error TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL DEFAULT '',
    fence_epoch INTEGER NOT NULL DEFAULT 0,
    fence_n     INTEGER NOT NULL DEFAULT 0,
    until       INTEGER
) STRICT;
CREATE INDEX jobs_active ON jobs (no) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_unreplied ON jobs (no) WHERE reply_topic IS NOT NULL AND replied_at IS NULL;

-- The rows of letters that are purged stay.
CREATE TABLE items (
    job            TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    letter         INTEGER NOT NULL,
    state          TEXT NOT NULL,
    error          TEXT NOT NULL DEFAULT '',
    replay_count   INTEGER NOT NULL DEFAULT 0,
    copy_topic     TEXT NOT NULL DEFAULT '',
    copy_partition INTEGER NOT NULL DEFAULT 0,
    copy_offset    INTEGER NOT NULL DEFAULT -1,
    at             INTEGER NOT NULL,
    PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX items_letter ON items (letter);
CREATE INDEX items_failed ON items (job, letter) WHERE state = 'failed';

CREATE TABLE audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    object TEXT NOT NULL,
    count  INTEGER NOT NULL,
    detail TEXT NOT NULL
) STRICT;
