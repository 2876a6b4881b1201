//! The phases of a job in the child, according to the child's messages: its inputs are fetched, its kernels run, its
//! outputs are stored.

use tokio::sync::mpsc;

/// The phase of a job that was sent to the child.
#[derive(Debug)]
pub(super) struct Phase {
    now: Now,
    /// Whether the child may still request inputs.
    may_want: bool,
    /// Whether the child may still offer outputs.
    may_offer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    /// It waits for the jobs before it in its train.
    Behind,
    InputsCome,
    KernelsRun,
    OutputsLeave,
}

/// A request of the child for a job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChildRequest {
    /// Fetch the inputs in these buffers.
    Inputs(Vec<u32>),
    /// Store the outputs.
    Outputs,
}

pub(super) type RequestSender = mpsc::Sender<ChildRequest>;
pub(super) type RequestReceiver = mpsc::Receiver<ChildRequest>;

/// Creates a channel for the requests of one job, of which its phase accepts at most two.
pub(super) fn requests() -> (RequestSender, RequestReceiver) {
    mpsc::channel(2)
}

impl Phase {
    /// Creates the phase of a job that was just sent: its kernels may be running, unless the child requests inputs
    /// first.
    pub(super) const fn new(has_inputs: bool, has_outputs: bool) -> Self {
        Self { now: Now::KernelsRun, may_want: has_inputs, may_offer: has_outputs }
    }

    /// Creates the phase of a job that was sent with others, which run before it. Such a job moves no arrays.
    pub(super) const fn behind() -> Self {
        Self { now: Now::Behind, may_want: false, may_offer: false }
    }

    /// Records that the jobs before it in its train have ended, or may have.
    pub(super) fn begin(&mut self) {
        if self.is_behind() {
            self.now = Now::KernelsRun;
        }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.now == Now::Behind
    }

    /// Returns whether the kernels may be running. Otherwise the job can't be the cause of a fault.
    pub(super) fn is_running(&self) -> bool {
        self.now == Now::KernelsRun
    }

    /// Takes a request. Returns false if the request makes no sense now, because the child runs untrusted code.
    pub(super) fn accepts(&mut self, request: &ChildRequest) -> bool {
        let (asked, next) = match request {
            ChildRequest::Inputs(_) => (&mut self.may_want, Now::InputsCome),
            ChildRequest::Outputs => (&mut self.may_offer, Now::OutputsLeave),
        };
        let accepts = self.now == Now::KernelsRun && std::mem::take(asked);
        if accepts {
            self.now = next;
            // Inputs can't be requested after the kernels.
            self.may_want = false;
        }
        accepts
    }

    /// Records that the child was told to let the job continue. After the outputs, a job can only end.
    pub(super) fn go_on(&mut self) {
        if self.now == Now::InputsCome {
            self.now = Now::KernelsRun;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: ChildRequest = ChildRequest::Inputs(Vec::new());
    const OUTPUTS: ChildRequest = ChildRequest::Outputs;

    #[test]
    fn inputs_come_before_the_kernels_and_outputs_leave_after_them() {
        let mut phase = Phase::new(true, true);
        assert!(phase.is_running());
        assert!(phase.accepts(&INPUTS) && !phase.is_running());
        phase.go_on();
        assert!(phase.is_running());
        assert!(phase.accepts(&OUTPUTS) && !phase.is_running());
        phase.go_on();
        assert!(!phase.is_running(), "its kernels have ended");
    }

    #[test]
    fn what_a_child_asks_at_the_wrong_time_or_twice_is_ignored() {
        let mut phase = Phase::new(true, true);
        assert!(phase.accepts(&INPUTS) && !phase.accepts(&INPUTS) && !phase.accepts(&OUTPUTS));
        phase.go_on();
        assert!(!phase.accepts(&INPUTS) && phase.accepts(&OUTPUTS) && !phase.accepts(&OUTPUTS));
        let mut late = Phase::new(true, true);
        assert!(late.accepts(&OUTPUTS) && !late.accepts(&INPUTS));
    }

    #[test]
    fn a_job_behind_others_runs_once_they_have_ended() {
        let mut phase = Phase::behind();
        assert!(phase.is_behind() && !phase.is_running());
        assert!(!phase.accepts(&INPUTS) && !phase.accepts(&OUTPUTS));
        phase.begin();
        assert!(phase.is_running() && !phase.is_behind());
    }

    #[test]
    fn a_job_without_arrays_in_the_store_asks_for_nothing() {
        let mut phase = Phase::new(false, false);
        assert!(!phase.accepts(&INPUTS) && !phase.accepts(&OUTPUTS) && phase.is_running());
    }
}
