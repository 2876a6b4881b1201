-- One row for each attempt at a job. A job's row is always written in the same transaction, before its attempts.
create table attempts (
    job_id      uuid    not null,
    attempt     integer not null,
    state       text    not null,
    -- It ended with a final outcome after another attempt's had been recorded.
    superseded  boolean not null default false,
    -- Where it ended, or where it runs. What the device is, is kept here and not looked up in `devices`: a worker's name may be
    -- given to another machine, and the attempt then still says what it ran on. All null if it reached no device; the name is
    -- null too when the worker's release did not tell it.
    worker      text    not null,
    device      integer,
    device_name text,
    -- The driver was the emulator, not a GPU's.
    emulated    boolean,
    started_at  timestamptz,
    finished_at timestamptz,

    verdict         text,
    failure_code    text,
    failure_message text,
    failure_detail  text,
    failure_line    integer,

    -- From Timings, known once the attempt has ended.
    output_bytes      bigint,
    queue_us          bigint,
    wait_us           bigint,
    compile_us        bigint,
    load_us           bigint,
    copy_in_us        bigint,
    launches_us       bigint[],
    copy_out_us       bigint,
    total_us          bigint,
    device_bytes_peak bigint,
    module_cached     boolean,

    primary key (job_id, attempt),
    constraint attempts_attempt_is_counted
        check (attempt >= 1),
    constraint attempts_state_known
        check (state in ('running', 'succeeded', 'failed', 'cancelled', 'expired', 'lost', 'dead')),
    constraint attempts_running_has_started
        check (state <> 'running' or started_at is not null),
    constraint attempts_ended_has_finished
        check ((state = 'running') = (finished_at is null)),
    constraint attempts_ended_has_timings
        check (num_nulls(finished_at, output_bytes, queue_us, wait_us, compile_us, load_us, copy_in_us, launches_us,
                         copy_out_us, total_us, device_bytes_peak, module_cached) in (0, 12)),
    constraint attempts_device_is_described_whole
        check (num_nulls(device_name, emulated) in (0, 2) and (device_name is null or device is not null)),
    constraint attempts_superseded_is_final
        check (not superseded or state not in ('running', 'lost')),
    constraint attempts_failure_is_whole
        check (num_nulls(verdict, failure_code, failure_message) in (0, 3))
);
