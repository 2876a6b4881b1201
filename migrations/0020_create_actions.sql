-- What people did to jobs through a program that acts for them, such as the console.
create table actions (
    action_id   uuid        primary key,
    at          timestamptz not null,
    who         text        not null,
    -- cancel, replay, drop, or another word of the program.
    action      text        not null,
    -- What it was done to, such as the id of a job.
    target      text        not null,
    -- Where the person came from, such as an address.
    origin      text,
    -- The broker's user of the program, if the broker validated it.
    reported_by text
);

create index actions_at on actions (at, action_id);
