//! The measures of attempts that have ended: counts, sums, and times of stages.

use std::ops::Index;

use gpufleet_schema::{AttemptState, Verdict};

use super::stages::{Stage, Stages};

/// Counts and sums of attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measures {
    pub(crate) sums: Sums,
    pub(crate) stages: Stages,
}

/// A number for each [`Sum`].
pub(crate) type Sums = [i64; Sum::COUNT];

/// A sum. The order is that of the table's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    Succeeded,
    Failed,
    Cancelled,
    Expired,
    Dead,
    VerdictUser,
    VerdictTimeout,
    VerdictOutOfMemory,
    VerdictDevice,
    VerdictInfrastructure,
    Lost,
    Superseded,
    DeviceUs,
    QueueUs,
    InputBytes,
    OutputBytes,
    ChargedUs,
}

/// An attempt that has ended, with the numbers to count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) part: Part,
    pub(crate) state: AttemptState,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) queue_us: i64,
    pub(crate) compile_us: i64,
    pub(crate) copy_us: i64,
    pub(crate) kernel_us: i64,
    pub(crate) total_us: i64,
    pub(crate) charged_us: i64,
    pub(crate) input_bytes: i64,
    pub(crate) output_bytes: i64,
}

/// The role of an attempt in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It decided the outcome of the job.
    Outcome,
    /// Another attempt had decided the outcome already.
    Superseded,
    /// The job was tried again.
    Lost,
    /// It was a session, which counts only by its use of the device. A session takes hours and fails with its program, so it would spoil the
    /// outcomes and times of jobs.
    Session,
}

impl Sum {
    pub(crate) const COUNT: usize = Self::ChargedUs as usize + 1;

    /// The sums that count jobs by their outcome.
    const OUTCOMES: [Self; 5] = [Self::Succeeded, Self::Failed, Self::Cancelled, Self::Expired, Self::Dead];

    /// Returns the sum for a state. An outcome that only a later release knows counts as failed, because the job has
    /// not succeeded.
    fn of_state(state: AttemptState) -> Self {
        match state {
            AttemptState::Succeeded => Self::Succeeded,
            AttemptState::Failed | AttemptState::Later(_) => Self::Failed,
            AttemptState::Cancelled => Self::Cancelled,
            AttemptState::Expired => Self::Expired,
            AttemptState::Dead => Self::Dead,
            AttemptState::Running | AttemptState::Lost => unreachable!("neither is the outcome of a job"),
        }
    }

    /// Returns the sum for a verdict. `None` for a verdict that only a later release knows, because no column counts
    /// it.
    fn of_verdict(verdict: Verdict) -> Option<Self> {
        Some(match verdict {
            Verdict::User => Self::VerdictUser,
            Verdict::Timeout => Self::VerdictTimeout,
            Verdict::OutOfMemory => Self::VerdictOutOfMemory,
            Verdict::Device => Self::VerdictDevice,
            Verdict::Infrastructure => Self::VerdictInfrastructure,
            Verdict::Later(_) => return None,
        })
    }
}

impl Ended {
    /// Returns the use of a device by a session, which has no other measures.
    pub(crate) fn session(device_us: i64) -> Self {
        Self {
            part: Part::Session,
            state: AttemptState::Running,
            verdict: None,
            queue_us: 0,
            compile_us: 0,
            copy_us: 0,
            kernel_us: 0,
            total_us: device_us,
            charged_us: device_us,
            input_bytes: 0,
            output_bytes: 0,
        }
    }

    /// Returns whether counting it would add nothing, as for a session that never used its device. It then needs no row.
    pub(crate) fn counts_nothing(&self) -> bool {
        self.part == Part::Session && self.total_us == 0 && self.charged_us == 0
    }
}

impl Index<Sum> for Measures {
    type Output = i64;

    fn index(&self, sum: Sum) -> &i64 {
        &self.sums[sum as usize]
    }
}

impl Measures {
    pub(crate) fn count(&mut self, ended: &Ended) {
        match ended.part {
            // A lost attempt has no timings, because its worker did not report any.
            Part::Lost => self.add(Sum::Lost, 1),
            Part::Superseded => {
                self.add(Sum::Superseded, 1);
                self.count_use(ended);
            }
            Part::Session => self.count_use(ended),
            Part::Outcome => {
                self.count_use(ended);
                self.count_outcome(ended);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, others) in self.sums.iter_mut().zip(other.sums) {
            *mine = mine.saturating_add(others);
        }
        self.stages.merge(&other.stages);
    }

    /// Returns the number of jobs with an outcome.
    pub(crate) fn jobs(&self) -> i64 {
        Sum::OUTCOMES.iter().fold(0, |jobs: i64, outcome| jobs.saturating_add(self[*outcome]))
    }

    fn count_use(&mut self, ended: &Ended) {
        self.add(Sum::DeviceUs, ended.total_us);
        self.add(Sum::ChargedUs, ended.charged_us);
    }

    fn count_outcome(&mut self, ended: &Ended) {
        self.add(Sum::of_state(ended.state), 1);
        if let Some(counted) = ended.verdict.and_then(Sum::of_verdict) {
            self.add(counted, 1);
        }
        self.add(Sum::QueueUs, ended.queue_us);
        self.add(Sum::InputBytes, ended.input_bytes);
        self.add(Sum::OutputBytes, ended.output_bytes);
        self.stages.add(Stage::Queue, ended.queue_us);
        // A job that reached no device has no timings of these stages.
        if ended.total_us > 0 {
            self.stages.add(Stage::Compile, ended.compile_us);
            self.stages.add(Stage::Copy, ended.copy_us);
            self.stages.add(Stage::Kernel, ended.kernel_us);
            self.stages.add(Stage::Total, ended.total_us);
        }
    }

    fn add(&mut self, sum: Sum, more: i64) {
        let sum = &mut self.sums[sum as usize];
        *sum = sum.saturating_add(more);
    }
}
