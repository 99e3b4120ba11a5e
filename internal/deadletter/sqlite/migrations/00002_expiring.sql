-- +goose Up

-- What retention is about to take, by topic and age.
CREATE INDEX letters_expiring ON letters (topic, dead_at) WHERE NOT kept AND state IN ('dead', 'claimed');

-- Whether an error is a new one, and the letters that died of it.
CREATE INDEX letters_fingerprint ON letters (fingerprint, dead_at);
