//! Publishes how far running jobs are, from their first second on. The messages may be lost, and nothing waits for them.

use std::{
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gpufleet_schema::{Printed, Progress, VERSION, topology::progress_key};
use gpufleet_transport::ProgressPublisher;
use tokio::time::{Instant, timeout_at};

use super::{clock::unix_ms, prepared::Ready};
use crate::{
    disposition::Ending,
    executor::{JobProgress, Printout, Reached},
};

/// The time between two messages about a job, and before the first.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of messages of a worker in a second. Beyond it, jobs take turns.
const PER_SECOND_MAX: u32 = 64;

/// Reports one job.
#[derive(Debug)]
pub(super) struct Reporter {
    progress: JobProgress,
    printout: Option<Printout>,
    started_ms: i64,
    next: Instant,
    /// The number of the next message.
    sequence: u64,
    /// The printed bytes in the messages so far.
    printed_bytes: u64,
}

/// Publishes progress, and bounds how often.
#[derive(Debug)]
pub(super) struct ProgressChannel {
    publisher: ProgressPublisher,
    /// The current second, and the messages in it.
    second: Mutex<(Instant, u32)>,
    dropped: AtomicU64,
}

impl ProgressChannel {
    pub(super) fn over(publisher: ProgressPublisher) -> Self {
        Self { publisher, second: Mutex::new((Instant::now(), 0)), dropped: AtomicU64::new(0) }
    }

    /// Returns the number of messages that found no room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether the message is on its way.
    pub(super) fn offer(&self, key: String, progress: &Progress) -> bool {
        let is_sent = self.is_in_time(Instant::now()) && self.publisher.offer(key, progress.encode());
        if !is_sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_sent
    }

    fn is_in_time(&self, now: Instant) -> bool {
        let mut second = self.second.lock().expect("no thread panics while holding the count");
        if now.duration_since(second.0) >= Duration::from_secs(1) {
            *second = (now, 0);
        }
        second.1 += 1;
        second.1 <= PER_SECOND_MAX
    }
}

impl Reporter {
    pub(super) fn new(progress: JobProgress, printout: Option<Printout>) -> Self {
        let (started_ms, next) = (unix_ms(), Instant::now() + INTERVAL);
        Self { progress, printout, started_ms, next, sequence: 0, printed_bytes: 0 }
    }

    pub(super) fn progress(&self) -> &JobProgress {
        &self.progress
    }

    /// Publishes that the job's outputs are stored, as in [`Self::during`].
    pub(super) async fn while_storing<T>(
        &mut self,
        channel: &ProgressChannel,
        job: &Ready,
        storing: impl Future<Output = T>,
    ) -> T {
        self.progress.stores();
        self.during(channel, job, storing).await
    }

    /// Publishes the job's progress at intervals until the work ends.
    pub(super) async fn during<T>(
        &mut self,
        channel: &ProgressChannel,
        job: &Ready,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            match timeout_at(self.next, &mut work).await {
                Ok(done) => return done,
                Err(_still_working) => self.report(channel, job),
            }
        }
    }

    /// Publishes what is known, and asks for what the next message has.
    fn report(&mut self, channel: &ProgressChannel, job: &Ready) {
        let (task, envelope) = (job.task(), job.envelope());
        let reached = self.progress.reached();
        let bytes = self.printout.as_ref().map_or_else(Vec::new, |printout| printout.since(self.printed_bytes));
        let (printed, taken) = Printed::take(self.printed_bytes, &bytes);
        let progress = Progress {
            version: VERSION,
            job_id: task.job_id,
            attempt: envelope.attempt,
            sequence: self.sequence,
            at_ms: unix_ms(),
            started_ms: self.started_ms,
            stage: reached.stage,
            launches: Some(reached.launches).filter(|launches| launches.total > 0),
            counter: reached.counter,
            bytes: reached.bytes,
            printed: Some(printed).filter(|printed| !printed.text.is_empty()),
            ran_on: None,
        };
        let reply_to = envelope.reply_to().ok().flatten();
        let client = envelope.recipient(task.reply.as_ref(), reply_to.as_ref());
        if channel.offer(progress_key(&envelope.pool, client, task.job_id), &progress) {
            self.printed_bytes += taken as u64;
        }
        (self.sequence, self.next) = (self.sequence + 1, Instant::now() + INTERVAL);
        self.progress.look();
    }

    /// Says in the outcome of a job that did not succeed how far it was, if that was reported.
    pub(super) fn explain(&self, ending: &mut Ending) {
        let Reached { launches, counter, .. } = self.progress.reached();
        let (count, unit) = counter.map_or((launches, "launches"), |counter| (counter, "steps"));
        if self.sequence > 0 && count.total > 1 {
            ending.explain(&format!("it had finished {} of {} {unit}", count.done, count.total));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_how_far_the_job_was() {
        let mut ending = Ending::Lost { reason: "the executor died".to_owned(), suspect: false };
        ending.explain("it had finished 312 of 1000 launches");
        let Ending::Lost { reason, .. } = &ending else { unreachable!() };
        assert_eq!(reason, "the executor died; it had finished 312 of 1000 launches");
        let mut ending = Ending::Succeeded;
        ending.explain("it had finished everything");
        assert!(matches!(ending, Ending::Succeeded));
    }
}
