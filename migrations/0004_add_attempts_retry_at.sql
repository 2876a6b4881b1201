-- When the job is tried again after an attempt that was lost, by the worker's clock. Null if at once, or never.
alter table attempts
    add column retry_at timestamptz,
    add constraint attempts_retry_follows_a_loss check (retry_at is null or state = 'lost');
