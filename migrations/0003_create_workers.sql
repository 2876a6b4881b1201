-- Workers as their latest heartbeat described them.
create table workers (
    worker        text        primary key,
    first_seen_at timestamptz not null,
    last_seen_at  timestamptz not null,
    host          text        not null,
    pid           bigint      not null,
    revision      text        not null,
    pools         text[]      not null,
    jobs_running  bigint      not null,
    -- It drained and left; a later heartbeat brings it back.
    has_left      boolean     not null,
    constraint workers_seen_in_order check (first_seen_at <= last_seen_at)
);

-- A worker's devices. Those of its latest heartbeat have its `last_seen_at`; others have gone.
create table devices (
    worker         text        not null references workers,
    device         integer     not null,
    last_seen_at   timestamptz not null,
    uuid           text        not null,
    name           text        not null,
    -- The driver was the emulator, not a GPU's.
    emulated       boolean     not null,
    compute_major  integer     not null,
    compute_minor  integer     not null,
    memory_bytes   bigint      not null,
    driver_version integer     not null,
    primary key (worker, device),
    constraint devices_index_is_counted check (device >= 0),
    constraint devices_memory_is_size check (memory_bytes >= 0)
);
