//! A train on the supervisor's side: brief jobs that are sent to the child together.

use std::{
    mem,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::Program;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    attempt::{code, no_staging},
    flight::{JobEnd, Passenger, Stop, answered},
    handle::{Executor, ExecutorJob, Finished, concluded},
    loss::RunError,
    moves::Moved,
    phase::Phase,
    programs::Code,
    sent::{Ending, Sent, Staged},
    staging::Layout,
};
use crate::ipc::{ToExecutor, slab::StagingMemory};

/// Time after which a train is disbanded, because one of its jobs takes long. Many times the expected time of a train.
const DISBANDED_AFTER: Duration = Duration::from_millis(5);

/// A job of a train.
#[derive(Debug)]
pub struct Rider {
    time_limit: Duration,
    cancel: CancellationToken,
    state: State,
}

#[derive(Debug)]
enum State {
    Sent(Sent, Ending),
    Answered(Sent, JobEnd),
    /// The child was asked to release it if it has not begun.
    Disbanded(Sent, Ending),
    /// It was not sent. Without a result, it has to run alone.
    Over(Option<Result<Finished, RunError>>),
}

impl Executor {
    /// Sends brief jobs, which the child runs one after the other on one stream. They print nothing and move no arrays. Call
    /// [`Self::arrive`] next, then [`Self::finish`] for each.
    pub async fn depart(&self, jobs: &[ExecutorJob<'_>]) -> Vec<Rider> {
        let waiting = Instant::now();
        let planned: Vec<_> = jobs.iter().map(planned).collect();
        let bytes = planned.iter().flatten().map(|(_, layout)| layout.bytes).sum();
        let (mut memory, stream) = match self.room(bytes).await {
            Ok(room) => room,
            Err(stop) => return jobs.iter().map(|job| Rider::new(job, State::stopped(&stop))).collect(),
        };
        let (mut states, mut passengers) = (Vec::with_capacity(jobs.len()), Vec::<Passenger<'_>>::new());
        for (job, planned) in jobs.iter().zip(planned) {
            let staged = planned.and_then(|(code, layout)| {
                let rest = memory.split_off(layout.bytes);
                let own = mem::replace(&mut memory, rest);
                Staged::new(&self.shared, job, code, job.compiled, layout, own).map_err(Some)
            });
            let state = staged.map_or_else(State::not_sent, |staged| {
                let phase = if passengers.is_empty() { Phase::new(false, false) } else { Phase::behind() };
                let (passenger, ending, sent) = staged.depart(&self.shared, waiting.elapsed(), &stream, phase);
                if let Some(before) = passengers.last_mut() {
                    before.pending.next = Some(sent.id);
                }
                passengers.push(passenger);
                State::Sent(sent, ending)
            });
            states.push(state);
        }
        if !passengers.is_empty()
            && let Err(stop) = self.shared.submit(passengers)
        {
            states.iter_mut().for_each(|state| *state = State::stopped(&stop));
        }
        jobs.iter().zip(states).map(|(job, state)| Rider::new(job, state)).collect()
    }

    /// Waits for the ends of all jobs of a train. If one takes long, takes back those behind it.
    pub async fn arrive(&self, train: &mut [Rider]) {
        let mut late = pin!(sleep(DISBANDED_AFTER));
        for rider in &mut *train {
            if let State::Sent(_, ending) = &mut rider.state {
                tokio::select! {
                    biased;
                    ended = ending => rider.answer(answered(ended)),
                    () = late.as_mut() => break,
                }
            }
        }
        let rest: Vec<u64> = train.iter_mut().filter_map(Rider::disband).collect();
        if !rest.is_empty() {
            self.shared.say(&ToExecutor::Disband { jobs: rest });
        }
    }

    /// Waits for the end of one job of a train that has arrived. Returns `None` if the job has not run, and has to run alone.
    pub async fn finish(&self, rider: Rider) -> Option<Result<Finished, RunError>> {
        let Rider { time_limit, cancel, state } = rider;
        let (sent, ended) = match state {
            State::Over(result) => return result,
            State::Answered(sent, ended) => (sent, ended),
            State::Sent(sent, ending) | State::Disbanded(sent, ending) => {
                match self.shared.wait(sent.id, ending, time_limit, &cancel).await {
                    JobEnd::Released => return None,
                    ended => (sent, ended),
                }
            }
        };
        Some(concluded(sent.finished(ended, Moved::default())))
    }

    /// Waits for staging memory and a stream.
    async fn room(&self, bytes: u64) -> Result<(StagingMemory, Arc<OwnedSemaphorePermit>), Stop> {
        let (shared, never) = (&self.shared, CancellationToken::new());
        let memory = shared.unless_over(&never, shared.slab.take(bytes)).await?.map_err(no_staging)?;
        let stream = shared.unless_over(&never, Arc::clone(&shared.streams).acquire_owned()).await?;
        Ok((memory, Arc::new(stream.expect("the semaphore is never closed"))))
    }
}

impl Rider {
    fn new(job: &ExecutorJob<'_>, state: State) -> Self {
        Self { time_limit: job.time_limit, cancel: job.cancel.clone(), state }
    }

    fn answer(&mut self, ended: JobEnd) {
        self.state = match mem::replace(&mut self.state, State::Over(None)) {
            State::Sent(sent, _) => State::Answered(sent, ended),
            other => other,
        };
    }

    /// Marks a job that is not answered yet, and returns its number.
    fn disband(&mut self) -> Option<u64> {
        match mem::replace(&mut self.state, State::Over(None)) {
            State::Sent(sent, ending) => {
                let id = sent.id;
                self.state = State::Disbanded(sent, ending);
                Some(id)
            }
            other => {
                self.state = other;
                None
            }
        }
    }
}

impl State {
    /// Returns the state of a job that was not sent: it has failed, unless it has to run alone (`None`).
    fn not_sent(stop: Option<Stop>) -> Self {
        Self::Over(stop.map(|stop| concluded(Err(stop))))
    }

    /// Returns the state of a job of a train that was not sent.
    fn stopped(stop: &Stop) -> Self {
        Self::Over(match stop {
            Stop::Lost(loss, was_running) => {
                let (cause, reason) = (loss.cause, loss.reason.clone());
                Some(Err(RunError::Lost { cause, reason, was_running: *was_running }))
            }
            // Each job tries alone, and gets an error of its own.
            Stop::Failed(..) | Stop::Cancelled => None,
        })
    }
}

/// Plans a job of a train; `None` if it has to run alone.
fn planned<'a>(job: &ExecutorJob<'a>) -> Result<(Code<'a>, Layout), Option<Stop>> {
    // Its compiled program was dropped to save memory, so it has to be compiled again.
    if matches!(job.task.program, Program::Source { .. }) && job.compiled.is_none() {
        return Err(None);
    }
    let failed = |failure| Some(Stop::failed(failure));
    let code = code(&job.task.program, job.compiled).map_err(failed)?;
    Ok((code, Layout::of(job.task).map_err(failed)?))
}
