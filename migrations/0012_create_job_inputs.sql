-- Blobs that jobs take as inputs, so that pruning the blob store removes none that a job still needs. A row goes two days after its job has
-- ended, because a new job may name the same blob and its first event may be on its way.
create table job_inputs (
    job_id   uuid not null,
    digest   text not null,
    -- When the recorder wrote the outcome of the job; null until then.
    ended_at timestamptz,

    primary key (job_id, digest),
    constraint job_inputs_digest_is_sha256
        check (digest ~ '^sha256:[0-9a-f]{64}$')
);

-- The recorder looks here for rows that may go.
create index job_inputs_ended on job_inputs (ended_at) where ended_at is not null;
-- For the question which jobs use a blob.
create index job_inputs_by_digest on job_inputs (digest);
create index job_outputs_by_digest on job_outputs (digest) where digest is not null;

-- When a recorder last found no event waiting in its queue. What was published before is recorded, but for what another recorder holds. One
-- row.
create table recorder_progress (
    only_row     boolean     primary key default true check (only_row),
    caught_up_at timestamptz not null
);
