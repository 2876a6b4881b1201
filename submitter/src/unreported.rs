//! Telling the ledger of confirmed jobs. One that is answered soon needs no `submitted` event, because its worker's event tells as much.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use gpufleet_schema::{Event, JobId, Submitted};
use gpufleet_transport::{EventSink, PublishError};
use tokio::time::{sleep, timeout};
use tracing::debug;

/// A submission is told after one to two of these: most short jobs are answered by then.
const PAUSE: Duration = Duration::from_millis(100);
/// So many submissions stay here if their jobs are not answered and the broker takes no events. Callers of further ones wait until there
/// is room for their events. With labels as long as they may be, these are 64 MiB.
const UNREPORTED_MAX: usize = 4096;

/// Tells the ledger of submissions. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    unreported: Arc<Unreported>,
    events: EventSink,
    deadline: Duration,
}

/// Submissions that the ledger has not been told of.
#[derive(Debug, Default)]
pub(crate) struct Unreported(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    /// Since the last sweep.
    young: HashMap<JobId, Submitted>,
    /// From before it.
    old: HashMap<JobId, Submitted>,
    /// A task sweeps until nothing is left.
    is_swept: bool,
}

impl Reports {
    /// Waits at most `deadline` for room among the events in [`Reports::finish`].
    pub(crate) fn new(unreported: Arc<Unreported>, events: EventSink, deadline: Duration) -> Self {
        Self { unreported, events, deadline }
    }

    /// Tells of these submissions unless their jobs are answered soon. The event of one that is forgotten when the process ends without
    /// [`Reports::finish`] costs only the time at which the job was confirmed, once a worker has run it.
    pub(crate) async fn tell_later(&self, submitted: Vec<Submitted>) {
        match self.unreported.add(submitted) {
            Ok(true) => drop(tokio::spawn(self.clone().sweep())),
            Ok(false) => {}
            Err(too_many) => self.tell(too_many).await,
        }
    }

    /// Tells of these submissions now.
    pub(crate) async fn tell(&self, submitted: impl IntoIterator<Item = Submitted>) {
        for event in submitted {
            if let Err(error) = self.events.send(Event::Submitted(event)).await {
                debug!(%error, "could not report a submission to the ledger");
            }
        }
    }

    /// Tells of all that are left, and resolves when the broker has them.
    pub(crate) async fn finish(&self) -> Result<(), PublishError> {
        if timeout(self.deadline, self.tell(self.unreported.take())).await.is_err() {
            debug!("could not report all submissions to the ledger: the broker takes no events");
        }
        self.events.flush().await
    }

    /// Tells of all that are left and find room at once. The events leave as long as the runtime goes on.
    pub(crate) fn tell_rest(&self) {
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

    /// Gives back what finds no room.
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
    /// The job is answered, so its worker tells the ledger.
    pub(crate) fn forget(&self, job_id: JobId) {
        let mut kept = self.generations();
        if kept.young.remove(&job_id).is_none() {
            kept.old.remove(&job_id);
        }
    }

    /// Keeps submissions, and says whether sweeping has to begin. Gives them back if there are too many already.
    fn add(&self, submitted: Vec<Submitted>) -> Result<bool, Vec<Submitted>> {
        let mut kept = self.generations();
        if kept.young.len() + kept.old.len() >= UNREPORTED_MAX {
            return Err(submitted);
        }
        kept.young.extend(submitted.into_iter().map(by_job));
        Ok(!kept.young.is_empty() && !mem::replace(&mut kept.is_swept, true))
    }

    /// Hands over what was here at the sweep before this one; `offer` gives back what finds no room. False if nothing is left.
    fn sweep(&self, offer: impl FnMut(Submitted) -> Option<Submitted>) -> bool {
        let mut kept = self.generations();
        let no_room: Vec<Submitted> = mem::take(&mut kept.old).into_values().filter_map(offer).collect();
        kept.old = mem::take(&mut kept.young);
        kept.old.extend(no_room.into_iter().map(by_job));
        kept.is_swept = !kept.old.is_empty();
        kept.is_swept
    }

    /// Everything, however new.
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
        AttemptState, Batch, Encoding, JobInfo, PoolName, Priority, Program, Reply, Task, Timings, VERSION,
    };

    use super::*;
    use crate::inbox::Inbox;

    fn submitted() -> Submitted {
        let task = Task::new(Program::Catalog("saxpy".into()));
        Submitted { job: JobInfo::of(&task, PoolName::default(), Priority::Normal, None), at_ms: 1 }
    }

    /// What a sweep hands over, and whether anything is left.
    fn swept(unreported: &Unreported) -> (Vec<JobId>, bool) {
        let mut told = Vec::new();
        let is_left = unreported.sweep(|submitted| {
            told.push(submitted.job.job_id);
            None
        });
        (told, is_left)
    }

    #[test]
    fn a_job_is_told_of_at_the_second_sweep_unless_it_was_answered() {
        let unreported = Unreported::default();
        let jobs: Vec<Submitted> = (0..3).map(|_| submitted()).collect();
        let [slow, soon, later] = [0, 1, 2].map(|index: usize| jobs[index].job.job_id);
        assert_eq!(unreported.add(jobs), Ok(true), "sweeping begins");
        assert_eq!(unreported.add(vec![submitted()]), Ok(false), "once");
        unreported.forget(soon);
        assert_eq!(swept(&unreported), (vec![], true));
        unreported.forget(later);
        let (told, is_left) = swept(&unreported);
        assert!(told.contains(&slow) && told.len() == 2 && !is_left, "{told:?}");
        assert_eq!(unreported.add(Vec::new()), Ok(false), "nothing to sweep");
        assert_eq!(unreported.add(vec![submitted()]), Ok(true), "sweeping begins again");
    }

    #[test]
    fn a_reply_spares_the_event_unless_the_worker_gave_up_on_the_message() {
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
        };
        let replies = vec![reply(&done, AttemptState::Succeeded), reply(&dead, AttemptState::Dead)];
        inbox.unreported().add(vec![done, dead.clone()]).unwrap();
        let body = Encoding::MessagePack.encode_replies(&Batch::Many(replies)).unwrap();
        inbox.deliver(Encoding::MessagePack, None, &body).unwrap();
        assert_eq!(inbox.unreported().take(), [dead]);
    }

    #[test]
    fn what_finds_no_room_is_offered_again() {
        let unreported = Unreported::default();
        let job = submitted();
        unreported.add(vec![job.clone()]).unwrap();
        assert!(unreported.sweep(|_| panic!("it is too new")));
        assert!(unreported.sweep(Some), "there was no room");
        assert_eq!(swept(&unreported), (vec![job.job.job_id], false));
    }

    #[test]
    fn all_that_is_left_is_taken_at_the_end_however_new() {
        let unreported = Unreported::default();
        let (old, new) = (submitted(), submitted());
        unreported.add(vec![old.clone()]).unwrap();
        swept(&unreported);
        unreported.add(vec![new.clone()]).unwrap();
        assert_eq!(unreported.take(), [old, new]);
        assert_eq!(swept(&unreported), (vec![], false));
    }

    #[test]
    fn submissions_that_are_too_many_are_given_back() {
        let unreported = Unreported::default();
        unreported.add((0..UNREPORTED_MAX).map(|_| submitted()).collect()).unwrap();
        let more = vec![submitted()];
        assert_eq!(unreported.add(more.clone()), Err(more));
    }
}
