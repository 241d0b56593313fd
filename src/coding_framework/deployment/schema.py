"""Tables of the deployment database, as numbered migrations: each is one transaction."""

from __future__ import annotations

_NEW = """
CREATE TABLE version(id TEXT PRIMARY KEY, spec TEXT NOT NULL, digest TEXT NOT NULL UNIQUE,
  evaluation TEXT, created_us INTEGER NOT NULL, retired_us INTEGER);
CREATE TABLE endpoint(alias TEXT PRIMARY KEY, incumbent TEXT NOT NULL REFERENCES version(id),
  previous TEXT, generation INTEGER NOT NULL);
CREATE TABLE experiment(id TEXT PRIMARY KEY, alias TEXT NOT NULL, config TEXT NOT NULL,
  salt_enrol TEXT NOT NULL, salt_arm TEXT NOT NULL, state TEXT NOT NULL, resume_state TEXT,
  step INTEGER NOT NULL DEFAULT 0,
  enrolment REAL NOT NULL DEFAULT 0 CHECK(enrolment BETWEEN 0 AND 1),
  generation INTEGER NOT NULL, reason TEXT, created_us INTEGER, ended_us INTEGER);
CREATE UNIQUE INDEX one_active ON experiment(alias)
  WHERE state NOT IN ('DRAFT','PROMOTED','ROLLED_BACK','STOPPED');
CREATE TABLE event(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
  ts_us INTEGER NOT NULL, experiment TEXT, kind TEXT NOT NULL, unit BLOB, variant TEXT,
  request TEXT, body TEXT NOT NULL);
CREATE INDEX event_by_experiment ON event(experiment, seq);
CREATE TRIGGER event_fixed BEFORE UPDATE ON event
  BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER event_kept BEFORE DELETE ON event
  BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TABLE audit(seq INTEGER PRIMARY KEY, ts_us INTEGER NOT NULL, actor TEXT NOT NULL,
  action TEXT NOT NULL, experiment TEXT, before TEXT NOT NULL, after TEXT NOT NULL,
  reason TEXT NOT NULL, evidence TEXT NOT NULL);
"""

_FIFTH = """
DROP TABLE IF EXISTS checkpoint;
DROP TABLE IF EXISTS look;
DROP TABLE IF EXISTS archive;
DROP TABLE IF EXISTS backend;
DROP INDEX IF EXISTS event_by_unit;
DROP TABLE clock;
ALTER TABLE event DROP COLUMN boot;
ALTER TABLE audit DROP COLUMN prev_sha256;
ALTER TABLE audit DROP COLUMN sha256;
ALTER TABLE experiment DROP COLUMN config_sha256;
"""

MIGRATIONS = (_NEW, "", "", "", _FIFTH)
"""The first makes a new database; the three after it only made what _FIFTH drops. Number N brings
one from version N to N + 1: edit none that was released, add one, and its changes to _NEW."""
