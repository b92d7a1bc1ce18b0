-- Jobs on a cluster: what was planned, and what became of each shard. The requests of a shard are in its journal.

CREATE TABLE cluster_jobs (
    name text PRIMARY KEY,
    about json NOT NULL,                    -- what identifies the job: another list or source is refused
    plan json NOT NULL,                     -- files and fragments, in their order
    shards integer[] NOT NULL,              -- of each part of the job
    run integer NOT NULL DEFAULT 1,         -- how often it was taken up; workers of earlier runs stop
    stopped boolean NOT NULL DEFAULT false,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    active_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE cluster_results (
    job text NOT NULL REFERENCES cluster_jobs (name) ON DELETE CASCADE,
    shard integer NOT NULL,
    report json NOT NULL,                   -- of a shard of which nothing is left to do
    PRIMARY KEY (job, shard)
);
