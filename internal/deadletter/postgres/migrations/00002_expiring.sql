-- +goose NO TRANSACTION
-- +goose Up

-- What retention is about to take, by topic and age. Built beside the work of the programs of before; one that a build
-- which was broken off has left is not valid, and made again.
DROP INDEX CONCURRENTLY IF EXISTS letters_expiring;
CREATE INDEX CONCURRENTLY letters_expiring ON letters (topic, dead_at, id) WHERE NOT kept AND state IN ('dead', 'claimed');
