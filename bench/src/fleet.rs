//! gpufleet as a producer uses it: the client library on a running fleet.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use gpufleet::{Job, JobHandle, JobResult, schema::ClientName};

use crate::{saxpy, stats::Run};

/// The number of jobs in one `submit_many`: as many as the client packs into one message.
pub const PACK: usize = 64;

/// A producer: a client of the fleet.
#[derive(Debug)]
pub struct Producer {
    client: gpufleet::Fleet,
    /// The number of floats in each array of a job.
    floats: usize,
}

/// The number of a job, its round-trip time, and its result.
type Answer = (usize, Duration, JobResult);

impl Producer {
    pub async fn connect(amqp_url: &str, floats: usize) -> anyhow::Result<Self> {
        let client = gpufleet::Fleet::connect(amqp_url).await.context("failed to connect to the fleet")?;
        Ok(Self { client, floats })
    }

    pub fn name(&self) -> &ClientName {
        self.client.client()
    }

    /// Runs `count` jobs, each with its own call of `submit`, `in_flight` at a time. The caller sets the deadline.
    pub async fn submit_each(&self, count: usize, in_flight: usize) -> anyhow::Result<Run> {
        let jobs: Vec<(usize, Job)> = self.jobs(count);
        let started = Instant::now();
        let answers: Vec<Answer> = stream::iter(jobs)
            .map(|(number, job)| self.round_trip(number, job))
            .buffer_unordered(in_flight)
            .try_collect()
            .await?;
        self.checked(started.elapsed(), &answers)
    }

    /// Runs jobs that share messages, with as many calls of `submit_many` at a time as `in_flight` needs. A job's round trip begins with
    /// its call. The next call begins when the last job of a call is answered.
    pub async fn submit_many(&self, count: usize, in_flight: usize) -> anyhow::Result<Run> {
        let pack = PACK.min(in_flight);
        let jobs: Vec<(usize, Job)> = self.jobs(count);
        let packs: Vec<Vec<(usize, Job)>> = jobs.chunks(pack).map(<[_]>::to_vec).collect();
        let started = Instant::now();
        let answers: Vec<Vec<Answer>> = stream::iter(packs)
            .map(|pack| self.pack_round_trip(pack))
            .buffer_unordered(in_flight / pack)
            .try_collect()
            .await?;
        self.checked(started.elapsed(), &answers.concat())
    }

    /// Submits one job of any kind, and leaves its result to the caller.
    pub async fn submit(&self, job: Job) -> anyhow::Result<JobHandle> {
        self.client.submit(job).await.context("failed to submit a job")
    }

    fn jobs(&self, count: usize) -> Vec<(usize, Job)> {
        (0..count).map(|number| (number, saxpy::job(number, self.floats))).collect()
    }

    async fn round_trip(&self, number: usize, job: Job) -> anyhow::Result<Answer> {
        let started = Instant::now();
        let handle = self.submit(job).await?;
        answer(number, handle, started).await
    }

    async fn pack_round_trip(&self, pack: Vec<(usize, Job)>) -> anyhow::Result<Vec<Answer>> {
        let (numbers, jobs): (Vec<usize>, Vec<Job>) = pack.into_iter().unzip();
        let started = Instant::now();
        let handles = self.client.submit_many(jobs).await;
        let answers = numbers.into_iter().zip(handles).map(async |(number, handle)| {
            let handle = handle.context("failed to submit a job")?;
            answer(number, handle, started).await
        });
        future::try_join_all(answers).await
    }

    pub async fn close(self) {
        self.client.close().await;
    }

    /// Checks the results after the clock has stopped, because the bare loop does not compute either.
    fn checked(&self, took: Duration, answers: &[Answer]) -> anyhow::Result<Run> {
        for (number, _, result) in answers {
            saxpy::check(*number, self.floats, &result.output::<f32>("y")?)?;
        }
        Ok(Run { took, round_trips: answers.iter().map(|(_, round_trip, _)| *round_trip).collect() })
    }
}

async fn answer(number: usize, handle: JobHandle, started: Instant) -> anyhow::Result<Answer> {
    let result = handle.await?;
    Ok((number, started.elapsed(), result))
}
