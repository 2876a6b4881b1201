//! Reports confirmed jobs to the ledger. A job that is answered soon needs no `submitted` event, because the worker's
//! event describes it too.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gpufleet_schema::{Event, JobId, Submitted};
use gpufleet_transport::{EventSink, PublishError};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// The time between sweeps. A submission is reported after one to two of them; most short jobs are answered by then.
const PAUSE: Duration = Duration::from_millis(100);
/// The most unreported submissions. Further ones need room in the event buffer at once. With labels of maximum length,
/// these submissions take 64 MiB, and with as many blobs as a job may have 32 MiB more.
const UNREPORTED_MAX: usize = 4096;
/// How long a submission waits for room in a full event buffer, which a healthy broker empties within milliseconds. If no
/// room comes, later submissions do not wait again until the buffer has had room.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// Reports submissions to the ledger. Clones share the unreported submissions.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    unreported: Arc<Unreported>,
    events: EventSink,
    deadline: Duration,
    /// Whether a submission has waited for room in vain, and none has had room since.
    is_stalled: Arc<AtomicBool>,
}

/// Submissions that were not reported to the ledger.
#[derive(Debug, Default)]
pub(crate) struct Unreported(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    /// Added since the last sweep.
    young: HashMap<JobId, Submitted>,
    /// Added before the last sweep.
    old: HashMap<JobId, Submitted>,
    /// Whether a task sweeps. It ends when nothing is left.
    is_swept: bool,
}

impl Reporter {
    /// [`Reporter::finish`] waits at most `deadline` for room in the event buffer.
    pub(crate) fn new(unreported: Arc<Unreported>, events: EventSink, deadline: Duration) -> Self {
        Self { unreported, events, deadline, is_stalled: Arc::default() }
    }

    /// Reports these submissions unless their jobs are answered soon. Some events are lost if the process ends without
    /// [`Reporter::finish`], or while the broker takes no events. The ledger then learns of the job from its worker, and
    /// lacks only the time of submission.
    pub(crate) async fn report_later(&self, submitted: Vec<Submitted>) {
        match self.unreported.add(submitted) {
            Ok(true) => drop(tokio::spawn(self.clone().sweep())),
            Ok(false) => {}
            Err(too_many) => self.report_promptly(too_many).await,
        }
    }

    /// Reports these submissions, and waits at most [`ROOM_WAIT`]: a full ledger queue must not stop producers.
    pub(crate) async fn report_promptly(&self, submitted: Vec<Submitted>) {
        let no_room: Vec<Submitted> = submitted.into_iter().filter_map(|submitted| self.offer(submitted)).collect();
        if no_room.is_empty() {
            self.is_stalled.store(false, Ordering::Relaxed);
        } else if !self.is_stalled.load(Ordering::Relaxed) && timeout(ROOM_WAIT, self.report(no_room)).await.is_err() {
            self.is_stalled.store(true, Ordering::Relaxed);
            warn!("the broker takes no events, so the ledger learns of new jobs only when workers start them");
        }
    }

    /// Reports these submissions, and waits for room without a deadline.
    async fn report(&self, submitted: impl IntoIterator<Item = Submitted>) {
        for event in submitted {
            if let Err(error) = self.events.send(Event::Submitted(event)).await {
                debug!(%error, "could not report a submission to the ledger");
            }
        }
    }

    /// Reports all submissions that are left, and returns when the broker has confirmed them.
    pub(crate) async fn finish(&self) -> Result<(), PublishError> {
        if timeout(self.deadline, self.report(self.unreported.take())).await.is_err() {
            debug!("could not report all submissions to the ledger: the broker takes no events");
        }
        self.events.flush().await
    }

    /// Reports the submissions that are left, as far as the event buffer has room. The events are published while the
    /// runtime still runs.
    pub(crate) fn report_rest(&self) {
        for submitted in self.unreported.take() {
            if self.offer(submitted).is_some() {
                debug!("could not report a submission to the ledger: the broker takes no events");
            }
        }
    }

    async fn sweep(self) {
        loop {
            sleep(PAUSE).await;
            if !self.unreported.sweep(|submitted| self.offer(submitted)) {
                return;
            }
        }
    }

    /// Returns the submission if the event buffer has no room.
    fn offer(&self, submitted: Submitted) -> Option<Submitted> {
        match self.events.offer(Event::Submitted(submitted)) {
            Ok(Some(Event::Submitted(submitted))) => Some(submitted),
            Ok(_) => None,
            Err(error) => {
                debug!(%error, "could not report a submission to the ledger");
                None
            }
        }
    }
}

impl Unreported {
    /// Drops the submission of an answered job, because its worker reports the job.
    pub(crate) fn forget(&self, job_id: JobId) {
        let mut kept = self.generations();
        if kept.young.remove(&job_id).is_none() {
            kept.old.remove(&job_id);
        }
    }

    /// Adds submissions, and returns whether the caller must start to sweep. Returns the submissions if there are too
    /// many.
    fn add(&self, submitted: Vec<Submitted>) -> Result<bool, Vec<Submitted>> {
        let mut kept = self.generations();
        if kept.young.len() + kept.old.len() >= UNREPORTED_MAX {
            return Err(submitted);
        }
        kept.young.extend(submitted.into_iter().map(by_job));
        Ok(!kept.young.is_empty() && !mem::replace(&mut kept.is_swept, true))
    }

    /// Offers the submissions that the previous sweep found; `offer` returns one that finds no room. Returns whether
    /// any submissions are left.
    fn sweep(&self, offer: impl FnMut(Submitted) -> Option<Submitted>) -> bool {
        let mut kept = self.generations();
        let no_room: Vec<Submitted> = mem::take(&mut kept.old).into_values().filter_map(offer).collect();
        kept.old = mem::take(&mut kept.young);
        kept.old.extend(no_room.into_iter().map(by_job));
        kept.is_swept = !kept.old.is_empty();
        kept.is_swept
    }

    /// Takes all submissions, the older ones first.
    fn take(&self) -> Vec<Submitted> {
        let mut kept = self.generations();
        let (young, old) = (mem::take(&mut kept.young), mem::take(&mut kept.old));
        old.into_values().chain(young.into_values()).collect()
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

fn by_job(submitted: Submitted) -> (JobId, Submitted) {
    (submitted.job.job_id, submitted)
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{
        AttemptState, Encoding, JobInfo, OneOrMany, PoolName, Priority, Program, Reply, Task, Timings, VERSION,
    };

    use super::*;
    use crate::inbox::Inbox;

    fn submitted() -> Submitted {
        let task = Task::new(Program::Catalog("saxpy".into()));
        Submitted { job: JobInfo::of(&task, PoolName::default(), Priority::Normal, None), at_ms: 1 }
    }

    /// The jobs that a sweep reports, and whether any are left.
    fn swept(unreported: &Unreported) -> (Vec<JobId>, bool) {
        let mut reported = Vec::new();
        let is_left = unreported.sweep(|submitted| {
            reported.push(submitted.job.job_id);
            None
        });
        (reported, is_left)
    }

    #[test]
    fn the_second_sweep_reports_a_job_unless_it_was_answered() {
        let unreported = Unreported::default();
        let jobs: Vec<Submitted> = (0..3).map(|_| submitted()).collect();
        let [slow, soon, later] = [0, 1, 2].map(|index: usize| jobs[index].job.job_id);
        assert_eq!(unreported.add(jobs), Ok(true), "the caller sweeps");
        assert_eq!(unreported.add(vec![submitted()]), Ok(false), "one task sweeps");
        unreported.forget(soon);
        assert_eq!(swept(&unreported), (vec![], true));
        unreported.forget(later);
        let (reported, is_left) = swept(&unreported);
        assert!(reported.contains(&slow) && reported.len() == 2 && !is_left, "{reported:?}");
        assert_eq!(unreported.add(Vec::new()), Ok(false), "nothing to sweep");
        assert_eq!(unreported.add(vec![submitted()]), Ok(true), "the caller sweeps again");
    }

    #[test]
    fn a_reply_saves_the_event_unless_the_worker_dead_lettered_the_message() {
        let inbox = Inbox::default();
        let (done, dead) = (submitted(), submitted());
        let reply = |job: &Submitted, state| Reply {
            version: VERSION,
            job_id: Some(job.job.job_id),
            attempt: 1,
            state,
            failure: None,
            outputs: Vec::new(),
            timings: Timings::default(),
            ran_on: None,
            printf_output: None,
            session: None,
        };
        let replies = vec![reply(&done, AttemptState::Succeeded), reply(&dead, AttemptState::Dead)];
        inbox.unreported().add(vec![done, dead.clone()]).unwrap();
        let body = Encoding::MessagePack.encode_replies(&OneOrMany::Many(replies)).unwrap();
        inbox.deliver(Encoding::MessagePack, None, &body).unwrap();
        assert_eq!(inbox.unreported().take(), [dead]);
    }

    #[test]
    fn a_submission_without_room_is_offered_again() {
        let unreported = Unreported::default();
        let job = submitted();
        unreported.add(vec![job.clone()]).unwrap();
        assert!(unreported.sweep(|_| panic!("it is too new")));
        assert!(unreported.sweep(Some), "there was no room");
        assert_eq!(swept(&unreported), (vec![job.job.job_id], false));
    }

    #[test]
    fn old_and_new_submissions_are_taken_at_the_end() {
        let unreported = Unreported::default();
        let (old, new) = (submitted(), submitted());
        unreported.add(vec![old.clone()]).unwrap();
        swept(&unreported);
        unreported.add(vec![new.clone()]).unwrap();
        assert_eq!(unreported.take(), [old, new]);
        assert_eq!(swept(&unreported), (vec![], false));
    }

    #[test]
    fn submissions_beyond_the_maximum_are_returned() {
        let unreported = Unreported::default();
        unreported.add((0..UNREPORTED_MAX).map(|_| submitted()).collect()).unwrap();
        let more = vec![submitted()];
        assert_eq!(unreported.add(more.clone()), Err(more));
    }
}
