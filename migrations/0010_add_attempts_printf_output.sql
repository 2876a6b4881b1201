-- What an attempt's kernels printed, and how many bytes of it are missing. Null where they printed nothing, or an older worker ran them.
-- The text has 64 KiB at most. Postgres keeps long ones outside the row, so pages of the history do not read them.
alter table attempts
    add column printf_output        text,
    add column printf_dropped_bytes bigint,
    add constraint attempts_printf_is_whole
        check (num_nulls(printf_output, printf_dropped_bytes) in (0, 2) and printf_dropped_bytes >= 0),
    add constraint attempts_running_has_not_printed check (finished_at is not null or printf_output is null);
