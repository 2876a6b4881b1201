//! The listener task of a handle: reads the child's frames and answers the jobs.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, mpsc::TrySendError},
    time::{Duration, Instant},
};

use gpufleet_schema::{Failure, FailureCode, Timings, Verdict};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncReadExt, BufReader},
    net::unix::OwnedReadHalf,
    time::timeout,
};
use tracing::warn;

use super::{
    flight::{Cut, JobEnd, Pending, Shared},
    loss::{Loss, LostCause},
    phase::ChildRequest,
    process::Exit,
    untrusted,
};
use crate::ipc::{
    FromExecutor, ToExecutor,
    frame::{self, FrameError, FrameHeader},
    message::Poison,
};

/// Time within which a child that has closed its socket must exit; after it the child is killed.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// `CUDA_ERROR_LAUNCH_TIMEOUT`, with which the emulated device ends a kernel at its job's time limit.
const LAUNCH_TIMEOUT: u32 = 702;

/// The receiving half of a child's socket. The child's frames carry no descriptors, so they can be read through a buffer.
pub(crate) type Incoming = BufReader<OwnedReadHalf>;

/// Reads the next message of a child, or `None` at the end of the socket.
pub(crate) async fn receive<T: DeserializeOwned>(socket: &mut Incoming) -> Result<Option<T>, FrameError> {
    let mut header = [0; FrameHeader::BYTES];
    match socket.read_exact(&mut header).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let mut body = vec![0; FrameHeader::parse(header)?.body_bytes];
    socket.read_exact(&mut body).await?;
    Ok(Some(frame::decode(&body)?))
}

/// Reads until the child has ended or survived a kill, then answers every remaining job.
pub(super) async fn listen(shared: Arc<Shared>, mut socket: Incoming) {
    let mut poison = None;
    let nonsense = tokio::select! {
        biased;
        nonsense = hear(&shared, &mut socket, &mut poison) => nonsense,
        () = shared.process.overdue() => None,
    };
    if nonsense.is_some() {
        shared.process.kill();
    }
    let exit = match timeout(EXIT_DEADLINE, shared.process.exit()).await {
        Ok(exit) => exit,
        Err(_) => {
            shared.process.kill();
            shared.process.exit().await
        }
    };
    bury(&shared, poison, nonsense, &exit);
    shared.outgoing.close();
}

/// Handles the child's messages until the end of the socket (`None`) or an invalid message, which is described.
async fn hear(shared: &Shared, socket: &mut Incoming, poison: &mut Option<Poison>) -> Option<String> {
    loop {
        match receive(socket).await {
            Ok(Some(FromExecutor::Finished { job, outcome, timings })) => {
                let outcome = outcome.map_err(untrusted::failure);
                finish(shared, job, JobEnd::Finished { outcome, timings });
            }
            Ok(Some(FromExecutor::Released { job })) => finish(shared, job, JobEnd::Released),
            Ok(Some(FromExecutor::Wants { job, buffers })) => asks(shared, job, ChildRequest::Inputs(buffers)),
            Ok(Some(FromExecutor::Offers { job })) => asks(shared, job, ChildRequest::Outputs),
            Ok(Some(FromExecutor::Copied { job, buffer, outcome })) => {
                if !copied(shared, job, buffer, outcome.map_err(untrusted::failure)) {
                    return Some("it answered more pieces than it was sent".to_owned());
                }
            }
            Ok(Some(FromExecutor::Input { input, bytes, is_resident })) => {
                shared.inputs.heard(input, bytes, is_resident);
            }
            Ok(Some(FromExecutor::Progress { job, launched, counter })) => {
                shared.progress(job).iter().for_each(|progress| progress.heard(launched, counter));
            }
            Ok(Some(FromExecutor::Memory(report))) => shared.memory_is(report),
            Ok(Some(FromExecutor::Waits { job })) => shared.state().clocks.wait(job, Instant::now()),
            Ok(Some(FromExecutor::GoesOn { job })) => shared.state().clocks.go_on(job, Instant::now()),
            Ok(Some(FromExecutor::Unpinned { segment, reason })) => unpinned(shared, segment, untrusted::text(&reason)),
            Ok(Some(FromExecutor::Poisoned(said))) => *poison = Some(untrusted::poison(said)),
            Ok(Some(FromExecutor::Ready(..) | FromExecutor::Refused(_))) => {
                return Some("it reported ready twice".to_owned());
            }
            Ok(None) => return None,
            // A killed child with unread frames resets the socket.
            Err(FrameError::Io(_)) => return None,
            Err(error) => return Some(untrusted::text(&format!("{error}"))),
        }
    }
}

fn finish(shared: &Shared, job: u64, end: JobEnd) {
    // A statement of its own, so that the lock is released.
    let pending = shared.state().end(job, Instant::now());
    let Some(pending) = pending else {
        warn!(job, "executor reported the end of a job that it was not running");
        return;
    };
    if pending.turn.is_some() {
        shared.printer.end();
    }
    // The receiver may be gone, because a cancelled job needs no outcome.
    drop(pending.answer.send(end));
}

fn asks(shared: &Shared, job: u64, request: ChildRequest) {
    let mut state = shared.state();
    let Some(pending) = state.pending.get_mut(&job) else { return };
    if !pending.phase.accepts(&request) {
        return;
    }
    let is_heard = pending.requests.as_ref().is_some_and(|requests| requests.try_send(request).is_ok());
    drop(state);
    if !is_heard {
        // The caller has stopped waiting, so the job would wait forever.
        shared.say(&ToExecutor::Release { job });
    }
}

/// Passes on the answer to a piece. Returns false if there are more answers than pieces, which is invalid.
fn copied(shared: &Shared, job: u64, buffer: u32, outcome: Result<(), Failure>) -> bool {
    let sent = shared.state().copies.get(&(job, buffer)).map(|answers| answers.try_send(outcome));
    // A reader or writer that has stopped needs no answer.
    !matches!(sent, Some(Err(TrySendError::Full(_))))
}

fn unpinned(shared: &Shared, segment: u32, reason: String) {
    let first = shared.state().unpinned.replace(reason.clone()).is_none();
    if first {
        warn!(segment, reason, "staging memory is not pinned, copies will be slower");
    }
}

/// Decides the outcome of each job after the child's end, under the lock that also makes later jobs fail.
fn bury(shared: &Shared, poison: Option<Poison>, nonsense: Option<String>, exit: &Exit) {
    let mut state = shared.state();
    let mut pending = std::mem::take(&mut state.pending);
    state.copies.clear();
    if poison.is_none() {
        // The answers that waited in the child are lost, so each job of a train may have begun.
        pending.values_mut().for_each(|pending| pending.phase.begin());
    }
    let poison = poison.map(|poison| {
        // Ignore a kernel name that no job in flight runs, because it would exonerate every job.
        let is_run = |kernel: &String| running(&pending).any(|pending| pending.entries.contains(kernel));
        let only = || only_kernel(running(&pending).map(|pending| &*pending.entries));
        Poison { kernel: poison.kernel.filter(is_run).or_else(only), ..poison }
    });
    // At a time limit the emulated device ends the kernel, and its report shows where the threads were.
    let is_limit = matches!(state.killed_for, Some((_, Cut::TimeLimit)));
    let (poison, standing) = match poison {
        Some(poison) if is_limit && poison.code == LAUNCH_TIMEOUT => (None, poison.report),
        poison => (poison, None),
    };
    let child_end =
        ChildEnd { poison, standing, nonsense, killed_for: state.killed_for, stopping: state.stopping, exit };
    let loss = child_end.loss(running(&pending).count());
    shared.lost.send_replace(Some(child_end.of_executor(&loss)));
    drop(state);
    let answers = child_end.answers(&pending);
    for (job, pending) in pending {
        if pending.turn.is_some() {
            shared.printer.end();
        }
        let ended = match answers.get(&job) {
            Some(Some(failure)) => JobEnd::Finished { outcome: Err(failure.clone()), timings: Timings::default() },
            Some(None) => JobEnd::Cancelled,
            None => JobEnd::Lost(child_end.loss_of(&pending, &loss, !answers.is_empty())),
        };
        drop(pending.answer.send(ended));
    }
}

/// Returns the jobs whose kernels may be running.
fn running(pending: &HashMap<u64, Pending>) -> impl Iterator<Item = &Pending> {
    pending.values().filter(|pending| pending.phase.is_running())
}

/// Everything that is known about a child's end.
struct ChildEnd<'a> {
    poison: Option<Poison>,
    /// Where a kernel's threads were at the time limit of its job.
    standing: Option<String>,
    nonsense: Option<String>,
    killed_for: Option<(u64, Cut)>,
    stopping: bool,
    exit: &'a Exit,
}

impl ChildEnd<'_> {
    /// Returns the loss for the restarter. If the process hangs, the device counts as the cause, so that the restarter probes it.
    fn of_executor(&self, loss: &Loss) -> Loss {
        if !self.exit.is_stuck() || loss.cause == LostCause::Stopped {
            return loss.clone();
        }
        Loss { cause: LostCause::Device, reason: format!("{}, and {}", loss.reason, self.exit.describe()) }
    }

    fn loss(&self, jobs: usize) -> Loss {
        let cause = match (&self.poison, self.killed_for) {
            (Some(poison), _) if poison.device => LostCause::Device,
            (Some(_), _) if jobs > 1 => LostCause::Suspect,
            (Some(_), _) | (None, Some(_)) => LostCause::Neighbour,
            (None, None) if self.stopping => LostCause::Stopped,
            (None, None) => LostCause::Died,
        };
        Loss { cause, reason: self.reason() }
    }

    fn reason(&self) -> String {
        match (&self.poison, &self.nonsense) {
            (Some(poison), _) => format!("the CUDA context was lost: {}", describe(poison)),
            (None, _) if let Some((_, cut)) = self.killed_for => match cut {
                Cut::TimeLimit => "the supervisor killed the executor at the time limit of a job".to_owned(),
                Cut::Cancelled => "the supervisor killed the executor to cancel a job".to_owned(),
            },
            (None, Some(nonsense)) => {
                format!("the supervisor killed the executor because of an invalid message: {nonsense}")
            }
            (None, None) if self.stopping => "the supervisor stopped the executor".to_owned(),
            (None, None) => format!("the executor died: {}", self.exit.describe()),
        }
    }

    /// Returns the jobs that caused the loss, each with its failure; `None` stands for a cancelled job.
    fn answers(&self, pending: &HashMap<u64, Pending>) -> HashMap<u64, Option<Failure>> {
        let time_limit = || {
            let message = "the job exceeded its time limit; the supervisor killed its executor";
            let failure = Failure::new(Verdict::Timeout, FailureCode::TimeLimit, message);
            match &self.standing {
                Some(standing) => failure.with_detail(standing.clone()),
                None => failure,
            }
        };
        match &self.poison {
            Some(poison) if !poison.device => {
                culprit(pending, poison).into_iter().map(|job| (job, Some(fault(poison)))).collect()
            }
            Some(_) => HashMap::new(),
            None => self
                .killed_for
                .into_iter()
                .filter(|(job, _)| pending.contains_key(job))
                .map(|(job, cut)| (job, (cut == Cut::TimeLimit).then(time_limit)))
                .collect(),
        }
    }

    /// Returns the loss to report to a job that is not a known cause. The job is innocent if a cause is known, or if the report names a
    /// kernel that the job does not run.
    fn loss_of(&self, pending: &Pending, loss: &Loss, cause_is_known: bool) -> Loss {
        let named = self.poison.as_ref().and_then(|poison| poison.kernel.as_ref());
        let innocent = cause_is_known || named.is_some_and(|kernel| !pending.entries.contains(kernel));
        match loss.cause {
            LostCause::Suspect | LostCause::Died if !pending.phase.is_running() => {
                Loss { cause: LostCause::Neighbour, reason: loss.reason.clone() }
            }
            LostCause::Suspect if innocent => Loss { cause: LostCause::Neighbour, reason: loss.reason.clone() },
            _ => loss.clone(),
        }
    }
}

/// Returns the only kernel of the only running job. In that case the driver need not name the kernel.
fn only_kernel<'a>(mut jobs: impl Iterator<Item = &'a [String]>) -> Option<String> {
    let (Some(entries), None) = (jobs.next(), jobs.next()) else { return None };
    let first = entries.first()?;
    entries.iter().all(|entry| entry == first).then(|| first.clone())
}

/// Returns the one job that can have caused a fault: the only one in flight, or the only one that runs the kernel that the emulator names.
fn culprit(pending: &HashMap<u64, Pending>, poison: &Poison) -> Option<u64> {
    let runs_it = |pending: &Pending| {
        pending.phase.is_running() && poison.kernel.as_ref().is_none_or(|kernel| pending.entries.contains(kernel))
    };
    let mut suspects = pending.iter().filter(|(_, pending)| runs_it(pending)).map(|(job, _)| *job);
    let first = suspects.next()?;
    suspects.next().is_none().then_some(first)
}

fn describe(poison: &Poison) -> String {
    let kernel = poison.kernel.as_ref().map(|kernel| format!("kernel {kernel}: ")).unwrap_or_default();
    format!("{kernel}{} ({}): {}", poison.name, poison.code, poison.text)
}

fn fault(poison: &Poison) -> Failure {
    let failure = Failure::new(Verdict::User, FailureCode::KernelFault, describe(poison));
    match &poison.report {
        Some(report) => failure.with_detail(report.clone()),
        None => failure,
    }
}

#[cfg(test)]
mod tests;
