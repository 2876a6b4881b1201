//! How far a job is, as the supervisor knows it.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use gpufleet_schema::{Count, Stage, Task};

use super::flight::Shared;
use crate::ipc::ToExecutor;

/// How far a job is. It grows while the job runs; clones share it.
#[derive(Debug, Clone)]
pub struct JobProgress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    reached: Reached,
    /// The executor that has the job, and the job's number there.
    place: Option<(Weak<Shared>, u64)>,
}

/// What a job has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub stage: Stage,
    pub launches: Count,
    pub counter: Option<Count>,
    /// The bytes that move in this stage.
    pub bytes: Option<Count>,
}

impl JobProgress {
    /// The progress of a task that was resolved and is about to begin.
    pub fn of(task: &Task<'_>) -> Self {
        let launches = Count::of(0, task.launches.iter().map(|launch| u64::from(launch.repeat)).sum());
        let counter = task.progress_total().map(|total| Count::of(0, total));
        let reached = Reached { stage: Stage::Running, launches, counter, bytes: None };
        Self(Arc::new(Mutex::new(State { reached, place: None })))
    }

    pub fn reached(&self) -> Reached {
        self.state().reached
    }

    /// Asks the executor how far the job is. The answer shows in [`Self::reached`] later.
    pub fn look(&self) {
        let place = self.state().place.as_ref().and_then(|(shared, job)| Some((shared.upgrade()?, *job)));
        if let Some((shared, job)) = place {
            shared.say(&ToExecutor::Look { job });
        }
    }

    /// The job was sent to an executor.
    pub(super) fn sent(&self, shared: &Arc<Shared>, job: u64) {
        self.state().place = Some((Arc::downgrade(shared), job));
    }

    /// The executor has answered. Its numbers are bounded by the task, and never fall, because user code can change them.
    pub(super) fn heard(&self, launched: u64, counter: Option<u64>) {
        let mut state = self.state();
        let Reached { launches, counter: known, .. } = &mut state.reached;
        *launches = Count::of(launched.max(launches.done), launches.total);
        if let (Some(known), Some(counter)) = (known, counter) {
            *known = Count::of(counter.max(known.done), known.total);
        }
    }

    /// Arrays of these bytes begin to move, because the job's inputs are fetched or its outputs stored.
    pub(super) fn moves(&self, stage: Stage, bytes: u64) {
        let mut state = self.state();
        (state.reached.stage, state.reached.bytes) = (stage, Some(Count::of(0, bytes)));
    }

    pub(super) fn moved(&self, bytes: u64) {
        if let Some(moving) = &mut self.state().reached.bytes {
            *moving = Count::of(moving.done.saturating_add(bytes), moving.total);
        }
    }

    /// Its kernels run, or will next.
    pub(super) fn runs(&self) {
        let mut state = self.state();
        (state.reached.stage, state.reached.bytes) = (Stage::Running, None);
    }

    /// It has left its executor, and its outputs are stored.
    pub fn stores(&self) {
        let mut state = self.state();
        (state.reached.stage, state.reached.bytes, state.place) = (Stage::Storing, None, None);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Arg, Grid, Launch, Program};

    use super::*;

    fn progress() -> JobProgress {
        let mut launch = Launch::new("step", Grid::Blocks(vec![1]));
        (launch.repeat, launch.args) = (10, vec![Arg::Progress(500)]);
        let last = Launch::new("last", Grid::Blocks(vec![1]));
        JobProgress::of(&Task { launches: vec![launch, last], ..Task::new(Program::Ptx("x".into())) })
    }

    #[test]
    fn a_kernel_can_neither_exceed_its_total_nor_go_back() {
        let progress = progress();
        progress.heard(3, Some(100));
        progress.heard(2, Some(90));
        let reached = progress.reached();
        assert_eq!((reached.launches, reached.counter), (Count::of(3, 11), Some(Count::of(100, 500))));
        progress.heard(u64::MAX, Some(u64::MAX));
        let reached = progress.reached();
        assert_eq!((reached.launches, reached.counter), (Count::of(11, 11), Some(Count::of(500, 500))));
    }

    #[test]
    fn bytes_belong_to_the_stage_that_moves_them() {
        let progress = progress();
        progress.moves(Stage::Fetching, 10);
        progress.moved(4);
        progress.moved(400);
        assert_eq!((progress.reached().stage, progress.reached().bytes), (Stage::Fetching, Some(Count::of(10, 10))));
        progress.runs();
        assert_eq!((progress.reached().stage, progress.reached().bytes), (Stage::Running, None));
        // No executor has it.
        progress.look();
    }
}
