//! gpufleet itself, as a producer sees it: the client library over a running fleet.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use gpufleet::{Job, JobHandle, JobResult, schema::ClientName};

use crate::{saxpy, stats::Run};

/// Jobs of one `submit_many`: as many as the client packs into one message.
pub const PACK: usize = 64;

/// A client of the fleet.
#[derive(Debug)]
pub struct Producer {
    client: gpufleet::Fleet,
    /// In each array of a job.
    floats: usize,
}

/// A job's answer by the job's number, and how long it took to get it.
type Answer = (usize, Duration, JobResult);

impl Producer {
    pub async fn connect(amqp_url: &str, floats: usize) -> anyhow::Result<Self> {
        let client = gpufleet::Fleet::connect(amqp_url).await.context("connect to the fleet")?;
        Ok(Self { client, floats })
    }

    pub fn name(&self) -> &ClientName {
        self.client.client()
    }

    /// A call of `submit` for every job, so many at a time. The caller keeps the deadline.
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

    /// Jobs that share messages, as many calls of `submit_many` at a time as make up what is to be in flight. A job's round
    /// trip begins with the call that it is part of, and the next call begins when the last job of one is answered.
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

    /// One job of whatever kind, whose answer is left to the caller.
    pub async fn submit(&self, job: Job) -> anyhow::Result<JobHandle> {
        self.client.submit(job).await.context("submit a job")
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
            let handle = handle.context("submit a job")?;
            answer(number, handle, started).await
        });
        future::try_join_all(answers).await
    }

    pub async fn close(self) {
        self.client.close().await;
    }

    /// Looks at the answers once the clock has stopped: the bare loop does not compute either.
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
