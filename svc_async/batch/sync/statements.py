"""The tables of a sync state, and the statements that compare and settle."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from svc_async.batch.sync.plan import Part
from svc_async.sqlite import FileFormat

__all__ = [
    "COUNT_PLAN",
    "COUNT_REASONS",
    "COUNT_UNLISTED_REMOVALS",
    "DELETE_EXPIRED",
    "FORMAT",
    "INSERT_LATEST",
    "INSERT_REMOVALS",
    "INSERT_UPSERTS",
    "PLAN_TABLES",
    "SETTLE",
    "SNAPSHOT_TABLES",
]

FORMAT = FileFormat(
    kind="a sync state",
    parameter="state",
    application_id=0x73766373,
    version=2,
    tables="""
    CREATE TABLE about (target TEXT NOT NULL, expires INTEGER);
    CREATE TABLE present (
        key INTEGER PRIMARY KEY, name BLOB NOT NULL, service_key TEXT, content INTEGER, expires INTEGER
    );
    CREATE TABLE removals (ordinal INTEGER PRIMARY KEY, key INTEGER NOT NULL, name BLOB NOT NULL, service_key TEXT);
    CREATE TABLE upserts (
        ordinal INTEGER PRIMARY KEY, position INTEGER NOT NULL,
        key INTEGER, name BLOB, content INTEGER, reason TEXT NOT NULL
    );
    CREATE TABLE outcomes (part TEXT NOT NULL, outcome INTEGER NOT NULL, ordinals BLOB NOT NULL);
    CREATE TABLE service_keys (key INTEGER PRIMARY KEY, service_key TEXT NOT NULL)
    """,
)
PLAN_TABLES: Sequence[str] = ("removals", "upserts", "outcomes", "service_keys")
"""What is empty between two runs."""
SNAPSHOT_TABLES = """
    DROP TABLE IF EXISTS temp.snapshot;
    DROP TABLE IF EXISTS temp.latest;
    CREATE TEMP TABLE snapshot (position INTEGER PRIMARY KEY, key INTEGER, name BLOB, content INTEGER);
    CREATE TEMP TABLE latest (key INTEGER PRIMARY KEY, position INTEGER, name BLOB, content INTEGER);
"""

DELETE_EXPIRED = "DELETE FROM present WHERE expires <= :now"
INSERT_LATEST = """
    INSERT INTO latest SELECT key, max(position), name, content FROM snapshot WHERE key IS NOT NULL
    GROUP BY key ORDER BY key
"""
INSERT_UPSERTS = """
    INSERT INTO upserts (position, key, name, content, reason)
    SELECT position, key, name, content, reason FROM (
        SELECT l.position, l.key, l.name, l.content, CASE
            WHEN p.content IS NULL THEN 'addition' WHEN p.content != l.content THEN 'change' ELSE 'refresh'
        END AS reason
        FROM latest l LEFT JOIN present p ON p.key = l.key
        WHERE p.content IS NULL OR p.content != l.content OR p.expires < :soon
        UNION ALL SELECT position, NULL, NULL, NULL, 'invalid' FROM snapshot WHERE key IS NULL
    ) ORDER BY position
"""
INSERT_REMOVALS = """
    INSERT INTO removals (key, name, service_key)
    SELECT p.key, p.name, p.service_key FROM present p LEFT JOIN latest l ON l.key = p.key
    WHERE l.key IS NULL OR (:replace AND p.content != l.content) ORDER BY p.key
"""
COUNT_PLAN = """
    SELECT
        (SELECT count(*) FROM present WHERE content IS NOT NULL),
        (SELECT count(*) FROM latest),
        (SELECT count(*) FROM removals),
        (SELECT count(*) FROM removals JOIN present USING (key) LEFT JOIN latest USING (key)
         WHERE latest.key IS NULL AND present.content IS NOT NULL)
"""
COUNT_REASONS = "SELECT reason, count(*) FROM upserts GROUP BY reason"
COUNT_UNLISTED_REMOVALS = "SELECT count(*) FROM removals LEFT JOIN latest USING (key) WHERE latest.key IS NULL"

_DELETE_REMOVED = """
    DELETE FROM present WHERE key IN (SELECT key FROM removals JOIN done USING (ordinal) WHERE outcome = 1)
"""
_DOUBT_REMOVALS = """
    UPDATE present SET content = NULL WHERE key IN
        (SELECT key FROM removals LEFT JOIN done USING (ordinal) WHERE outcome IS NOT 1)
"""
_INSERT_SENT = """
    INSERT INTO present (key, name, service_key, content, expires)
    SELECT u.key, u.name, s.service_key, CASE d.outcome WHEN 1 THEN u.content END, (SELECT expires FROM about)
    FROM upserts u LEFT JOIN done d ON d.ordinal = u.ordinal LEFT JOIN service_keys s ON s.key = u.key
    WHERE u.key IS NOT NULL AND d.outcome IS NOT 0 ORDER BY u.key
    ON CONFLICT (key) DO UPDATE SET name = excluded.name, content = excluded.content, expires = excluded.expires,
        service_key = coalesce(excluded.service_key, service_key)
"""
SETTLE: Mapping[Part, Sequence[str]] = MappingProxyType(
    {"removals": (_DELETE_REMOVED, _DOUBT_REMOVALS), "upserts": (_INSERT_SENT,)}
)
"""What settles each part, given the outcomes of its rows in the table `done`: 1 for accepted, 0 for failed."""
