-- The broker's user who published the job, where the broker vouched for it to a worker. Null where it did not.
alter table jobs add column user_id text;
