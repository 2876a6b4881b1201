-- The outputs that jobs keep, one row each, written with the outcome that returned them. What has expired can no longer be fetched; its row
-- stays, so that a person sees when it expired.
create table job_outputs (
    job_id     uuid        not null,
    -- The place in the task's list of outputs, from 0.
    position   integer     not null,
    name       text        not null,
    dtype      text        not null,
    shape      bigint[]    not null,
    -- The name of the blob, or the bytes themselves while they are kept.
    digest     text,
    data       bytea,
    expires_at timestamptz not null,

    primary key (job_id, position),
    constraint job_outputs_position_is_counted
        check (position >= 0),
    constraint job_outputs_digest_is_sha256
        check (digest ~ '^sha256:[0-9a-f]{64}$'),
    constraint job_outputs_is_in_one_place
        check (num_nonnulls(digest, data) <= 1)
);

-- The recorder looks here for data that has expired.
create index job_outputs_expiring on job_outputs (expires_at) where data is not null;
