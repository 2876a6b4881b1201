//! Runs host programs: starts each in a folder of its own, follows it to its end, and brings back its files.
//!
//! The program runs in processes of its own ([`crate::program`]). The supervisor passes on their output and reads nothing of it.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{DeviceProgram, Failure, FailureCode, SessionUse, Size, Timings, Verdict, text::recordable};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Supervisor,
    attempt_result::AttemptResult,
    clock::{micros, unix_ms},
    devices::{DeviceLease, WorkerDevice},
    handle::Input,
    prepared::Ready,
    preparing_program::host_program,
    program_files::{Left, ProgramFolder},
    program_host,
    program_output::ProgramOutput,
    sessions::End,
};
use crate::{
    dispatcher::JobNo,
    disposition::Ending,
    metrics::ProgramOutcome,
    program::{HostEvent, HostProcess, ProgramSpec},
    scheduler::DeviceId,
};

/// Time that a program has between SIGTERM and SIGKILL when it is cancelled or reaches its time limit.
const GRACE: Duration = Duration::from_secs(10);
/// How often the pool is charged for the device.
const CHARGED_EVERY: Duration = Duration::from_secs(1);
/// How often a program is claimed again, because a claim ends with the connection.
const CLAIMED_EVERY: Duration = Duration::from_secs(10);
/// Maximum bytes of a program's files, and of those that come back.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// A program that runs.
struct RunningProgram<'a> {
    job: JobNo,
    ready: &'a Ready,
    device: &'a WorkerDevice,
    process: HostProcess,
    output: ProgramOutput,
    started: Instant,
    started_ms: i64,
    charged_us: u64,
}

/// How a program ended.
enum ProgramEnd {
    /// The command ended, perhaps because the worker stopped it.
    Ended { end: End, left: Left, packing: Option<Failure> },
    /// It did not start, or its processes are lost.
    Failed(Ending),
}

impl Supervisor {
    /// Runs a host program from the moment at which it has its device.
    pub(super) async fn run_program(
        self: &Arc<Self>,
        job: JobNo,
        ready: Ready,
        device: DeviceId,
        cancel: &CancellationToken,
    ) -> Input {
        let device = self.device(device);
        let wait_us = micros(ready.envelope().received.elapsed());
        let starting = self.start_program(&ready, device);
        let started = tokio::select! {
            started = starting => started,
            () = cancel.cancelled() => Err(End::Cancelled.ending(None)),
            end = self.ended_by_worker(device) => Err(not_started(end)),
        };
        let (lease, folder, process) = match started {
            Ok(started) => started,
            Err(ending) => {
                // The broker refuses this if another worker has the claim.
                self.release_program(ready.task().job_id).await;
                return AttemptResult::default().ended(job, ending);
            }
        };
        let (pool, job_id) = (ready.demand.pool, ready.task().job_id);
        let label = recordable(&host_program(ready.task()).label());
        let presence = device.run_program(pool, DeviceProgram { job_id, label });
        let started_ms = unix_ms();
        let program = RunningProgram {
            job,
            ready: &ready,
            device,
            process,
            output: ProgramOutput::new(started_ms),
            started: Instant::now(),
            started_ms,
            charged_us: 0,
        };
        let (ending, mut attempt) = program.run(self, &folder, cancel).await;
        drop((presence, lease));
        self.metrics.program_ended(pool, outcome(&ending));
        folder.remove().await;
        self.release_program(job_id).await;
        attempt.timings.wait_us = wait_us;
        attempt.left(job, ending, Some(0))
    }

    /// Has the executors leave the device, makes the program's folder and starts its processes.
    async fn start_program(
        &self,
        ready: &Ready,
        device: &WorkerDevice,
    ) -> Result<(DeviceLease, ProgramFolder, HostProcess), Ending> {
        let (task, config) = (ready.task(), &self.config);
        let program = host_program(task);
        self.claim_program(ready).await?;
        let lease = device.lease().await;
        let mut folder = ProgramFolder::create(&config.program_folder, task, self.blobs.as_ref()).await?;
        let allowance = &self.pool_spec(ready.envelope()).programs;
        if let Some(cgroups) = &self.program_host.cgroups {
            folder.limit(cgroups, program_host::limits(allowance))?;
        }
        let (place, cgroup) = self.program_host.place(config, program, task.job_id, allowance, folder.cgroup());
        let spec = ProgramSpec {
            command: program.command.clone(),
            variables: program.variables.clone(),
            download: program.download.clone(),
            folder: folder.path().to_owned(),
            place,
            cgroup,
            device_uuid: device.info.uuid.clone(),
            driver_folder: folder.driver(&config.cuda, device.is_emulated()).await?,
            network: program.network,
            user: config.executor_user.clone(),
            file_bytes_max: FILE_BYTES_MAX,
        };
        match HostProcess::start(&spec).await {
            Ok(process) => Ok((lease, folder, process)),
            Err(error) => {
                let reason = format!("the worker could not start the program: {error}");
                Err(Ending::Lost { reason, suspect: false })
            }
        }
    }
}

impl RunningProgram<'_> {
    async fn run(
        mut self,
        supervisor: &Arc<Supervisor>,
        folder: &ProgramFolder,
        cancel: &CancellationToken,
    ) -> (Ending, AttemptResult) {
        let (task, envelope) = (self.ready.task(), self.ready.envelope());
        let job_id = task.job_id;
        let ran_on = self.device.ran_on(supervisor.config.name.clone());
        info!(%job_id, pool = %envelope.pool, device = self.device.id.0, "host program started");
        supervisor.tell_started(task, envelope, &ran_on, self.started_ms);
        self.output.begins(ran_on.clone());
        let end = self.follow(supervisor, cancel).await;
        self.charge(supervisor);
        self.output.publish(&supervisor.progress, self.ready);
        let ran_us = micros(self.started.elapsed());
        let mut attempt = AttemptResult {
            ran_on: Some(ran_on),
            started_ms: Some(self.started_ms),
            charged_us: Some(self.charged_us),
            timings: Timings { total_us: ran_us, ..Timings::default() },
            ..AttemptResult::default()
        };
        let of_memory = self.memory_exceeded(supervisor, folder, &end);
        attempt.printed = self.output.end();
        let mut ending = match end {
            ProgramEnd::Failed(ending) => ending,
            ProgramEnd::Ended { end, mut left, packing } => {
                let is_whole = attempt.printed.as_ref().is_none_or(|printed| printed.dropped_bytes == 0);
                left.log = left.log.filter(|_| !is_whole);
                attempt.session = Some(used(&end, ran_us));
                let outputs = folder.outputs(left, task, supervisor.blobs.as_ref()).await;
                let problem = match outputs {
                    Ok(outputs) => {
                        (attempt.outputs, attempt.kept) = outputs;
                        packing
                    }
                    Err(failure) => Some(failure),
                };
                concluded(end.ending(None), problem)
            }
        };
        of_memory.iter().for_each(|sentence| ending.explain(sentence));
        info!(%job_id, ran_us, "host program ended");
        (ending, attempt)
    }

    /// Returns a sentence about a program of which the kernel has killed a process because it had too much memory.
    fn memory_exceeded(&self, supervisor: &Supervisor, folder: &ProgramFolder, end: &ProgramEnd) -> Option<String> {
        let cgroup = folder.cgroup()?;
        let was_killed = match end {
            ProgramEnd::Ended { end: End::Command { exit_code, signal }, .. } => {
                *signal == Some(libc::SIGKILL) || *exit_code == Some(128 + libc::SIGKILL)
            }
            ProgramEnd::Ended { .. } => false,
            ProgramEnd::Failed(_) => true,
        };
        // Only version 2 counts what was killed.
        if !(was_killed || cgroup.is_unified()) || !cgroup.was_out_of_memory() {
            return None;
        }
        let pool = supervisor.pool_spec(self.ready.envelope());
        let limit = pool.programs.memory_bytes().map(|bytes| Size(bytes).to_string()).unwrap_or_default();
        Some(format!(
            "killed: it used more memory than program-memory={limit} of pool {}; let it use less, or raise the limit",
            pool.name
        ))
    }

    /// Follows the program to its end.
    async fn follow(&mut self, supervisor: &Arc<Supervisor>, cancel: &CancellationToken) -> ProgramEnd {
        let time_limit = self.ready.time_limit;
        let time_up = self.started + time_limit;
        let mut charging = interval(CHARGED_EVERY);
        charging.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claiming = interval(CLAIMED_EVERY);
        claiming.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Why the worker stops the program, once it does.
        let mut stopped: Option<End> = None;
        loop {
            let is_free = stopped.is_none();
            let stop = tokio::select! {
                event = self.process.next() => match self.take(event, &mut stopped, supervisor) {
                    Some(end) => return end,
                    None => continue,
                },
                () = self.output.due() => {
                    self.output.publish(&supervisor.progress, self.ready);
                    continue;
                }
                _ = charging.tick() => {
                    self.charge(supervisor);
                    continue;
                }
                _ = claiming.tick() => {
                    let (supervisor, job_id) = (Arc::clone(supervisor), self.ready.task().job_id);
                    tokio::spawn(async move { supervisor.keep_program_claimed(job_id).await });
                    continue;
                }
                () = cancel.cancelled(), if is_free => End::Cancelled,
                () = sleep_until(time_up), if is_free => {
                    let limit = humantime::format_duration(time_limit);
                    End::Limit(FailureCode::TimeLimit, format!("the program reached its time limit of {limit}"))
                }
                end = supervisor.ended_by_worker(self.device), if is_free => end,
            };
            stopped = Some(stop);
            self.process.stop(GRACE).await;
        }
    }

    /// Takes an event of the program's processes. Returns how it ended, if it did.
    fn take(&mut self, event: HostEvent, stopped: &mut Option<End>, supervisor: &Supervisor) -> Option<ProgramEnd> {
        match event {
            HostEvent::Started => None,
            HostEvent::Output(piece) => {
                supervisor.metrics.program_wrote(self.ready.demand.pool, piece.len());
                self.output.push(piece);
                None
            }
            HostEvent::Refused(reason) => {
                Some(ProgramEnd::Failed(failed(Verdict::User, FailureCode::ProgramFailed, reason)))
            }
            HostEvent::Ended { exit_code, signal, packed, log_bytes, log_dropped_bytes } => {
                let job_id = self.ready.task().job_id;
                if log_dropped_bytes > 0 {
                    warn!(%job_id, log_dropped_bytes, "output of a host program is longer than its log may be");
                }
                let (files, packing) = match packed {
                    Ok(files) => (files, None),
                    Err(reason) => (None, Some(Failure::new(Verdict::User, FailureCode::ProgramFailed, reason))),
                };
                let left = Left { files, log: Some(log_bytes) };
                let end = stopped.take().unwrap_or(End::Command { exit_code, signal });
                Some(ProgramEnd::Ended { end, left, packing })
            }
            HostEvent::Died(reason) => {
                let ending = match stopped.take() {
                    Some(end) => end.ending(None),
                    None => {
                        let reason = format!("the process that ran the program ended: {reason}");
                        failed(Verdict::Infrastructure, FailureCode::ExecutorLost, reason)
                    }
                };
                Some(ProgramEnd::Failed(ending))
            }
        }
    }

    /// Charges the pool for the device since the last charge: the program has all of it.
    fn charge(&mut self, supervisor: &Supervisor) {
        let used_us = micros(self.started.elapsed()).saturating_sub(self.charged_us);
        supervisor.dispatcher.tell(Input::Used { job: self.job, used_us });
        self.charged_us += used_us;
    }
}

/// Returns how an attempt ends whose worker stopped before the program started: another worker may run it.
fn not_started(end: End) -> Ending {
    match end {
        End::Fleet(_) => Ending::HandedBack,
        end => end.ending(None),
    }
}

/// Adds what went wrong with the files to the ending of a program that succeeded.
fn concluded(ending: Ending, problem: Option<Failure>) -> Ending {
    match (ending, problem) {
        (Ending::Succeeded, Some(failure)) => Ending::Failed(failure),
        (mut ending, Some(failure)) => {
            ending.explain(&failure.message);
            ending
        }
        (ending, None) => ending,
    }
}

/// Returns the label under which metrics count the program.
fn outcome(ending: &Ending) -> ProgramOutcome {
    match ending {
        Ending::Succeeded => ProgramOutcome::Succeeded,
        Ending::Failed(failure) => match failure.verdict {
            Verdict::Timeout => ProgramOutcome::Stopped,
            Verdict::Infrastructure | Verdict::Device => ProgramOutcome::Lost,
            _ => ProgramOutcome::Failed,
        },
        Ending::Cancelled { .. } => ProgramOutcome::Stopped,
        _ => ProgramOutcome::Lost,
    }
}

fn used(end: &End, ran_us: u64) -> SessionUse {
    let (exit_code, signal) = match end {
        End::Command { exit_code, signal } => (*exit_code, *signal),
        _ => (None, None),
    };
    SessionUse { processes: 1, busy_us: ran_us, exit_code, signal, ..SessionUse::default() }
}

fn failed(verdict: Verdict, code: FailureCode, message: String) -> Ending {
    Ending::Failed(Failure::new(verdict, code, message))
}
