//! Prepares a host program: its environment, its time limit, and a whole device.

use std::time::Duration;

use gpufleet_schema::{
    FailureCode, HostProgram, LargeOutputs, Program, Task,
    bounds::{BLOB_BYTES_MIN, MESSAGE_BYTES_MAX},
};

use super::{
    Supervisor,
    content::JobContent,
    envelope::Envelope,
    prepared::{CompiledPrograms, Ready, Resolved},
    preparing::{resolved, user},
};
use crate::{
    config::{Allowance, Isolation, PoolSpec, TimeAllowances, TooLong},
    dispatcher::Unfit,
    disposition::Ending,
    scheduler::{Demand, SessionTerms},
};

/// Time limit of a host program that sets none.
const TIME_LIMIT_DEFAULT: Duration = Duration::from_secs(3600);
/// All of a device.
const WHOLE_PERMILLE: u32 = 1000;

impl Supervisor {
    /// Prepares a host program. Dropping the future ends the check of its files in the blob store.
    pub(super) async fn prepare_program(&self, job: JobContent) -> Result<Ready, Ending> {
        let resolved = Resolved::try_new(job, resolved)?;
        let (task, job) = (resolved.task(), resolved.borrow_owner());
        let envelope = job.envelope();
        if job.message.is_list() {
            let one = "a host program is a message of its own; publish each by itself".to_owned();
            return Err(user(FailureCode::InvalidTask, one));
        }
        self.check_program(task, envelope)?;
        let spec = self.pool_spec(envelope);
        let run = Allowance { default: Some(TIME_LIMIT_DEFAULT), max: Some(spec.programs.time_max) };
        let times = TimeAllowances { run, ..spec.times };
        let too_long = |too_long: TooLong| user(FailureCode::Policy, too_long.to_string());
        let time_limit = times.run_limit(&task.limits).map_err(too_long)?;
        times.queue_limit(&task.limits).map_err(too_long)?;
        let needs_store = task.blob_bytes() > 0 || task.large_outputs == LargeOutputs::Blob;
        if needs_store && self.blobs.is_none() {
            return Err(self.without_store(task, envelope).await);
        }
        let allowed = self.allowed_sessions(&task.needs());
        if allowed.is_empty() {
            return Err(self.session_elsewhere(Unfit::NoDevice, task, envelope));
        }
        if task.blob_bytes() > 0 {
            self.check_blobs(task, envelope.pool_id).await?;
        }
        let demand = Demand {
            pool: envelope.pool_id,
            priority: envelope.priority,
            bytes: 0,
            alone: false,
            prints: false,
            allowed,
            input: None,
            returnable: true,
            brief_us: None,
            is_long: false,
            session: Some(SessionTerms { memory_permille: WHOLE_PERMILLE, insists: true, is_whole: true }),
        };
        let reply_bytes = if needs_store { 2 * BLOB_BYTES_MIN } else { MESSAGE_BYTES_MAX as u64 };
        let programs = CompiledPrograms::default();
        Ok(Ready { resolved, needs_store, reply_bytes, time_limit, demand, program: None, programs })
    }

    /// Checks that this worker has the program's environment, and that the pool allows what it asks for.
    fn check_program(&self, task: &Task<'_>, envelope: &Envelope) -> Result<(), Ending> {
        let HostProgram { environment, image, network, .. } = host_program(task);
        let spec = self.pool_spec(envelope);
        self.check_place(environment.as_deref(), image.as_deref(), spec)?;
        if *network && !spec.programs.network {
            let message = format!(
                "the program asks for the network, which pool {} does not allow; leave it out, or add program-network to the pool",
                spec.name
            );
            return Err(user(FailureCode::Policy, message));
        }
        Ok(())
    }

    /// Checks that the pool runs programs in this kind of place, and that the worker has it.
    fn check_place(&self, environment: Option<&str>, image: Option<&str>, pool: &PoolSpec) -> Result<(), Ending> {
        let (isolation, name) = match (environment, image) {
            (_, Some(image)) => (Isolation::Podman, image),
            (environment, None) => (Isolation::Environment, environment.unwrap_or_default()),
        };
        let (what, option, other, example) = match isolation {
            Isolation::Environment => ("environment", "--env", "--image", format!("--environment {name}=FOLDER")),
            Isolation::Podman => ("image", "--image", "--env", format!("--image {name}")),
        };
        if pool.programs.isolation != isolation {
            let message = format!(
                "pool {} runs no programs with {option}; use {other}, or another pool, or set program-isolation={isolation} for the pool",
                pool.name
            );
            return Err(user(FailureCode::Policy, message));
        }
        let config = &self.config;
        let names: Vec<&str> = match isolation {
            Isolation::Environment => config.environments.keys().map(String::as_str).collect(),
            Isolation::Podman => config.images.iter().map(String::as_str).collect(),
        };
        if names.contains(&name) {
            return Ok(());
        }
        let message = format!(
            "worker {} has no {what} {name:?}; it has {}; name one of these, or add {example} to the workers of pool {}",
            config.name,
            names.join(", "),
            pool.name
        );
        Err(user(FailureCode::RequirementsNotMet, message))
    }
}

/// Returns the host program of a task that has one.
pub(super) fn host_program<'a>(task: &'a Task<'_>) -> &'a HostProgram {
    match &task.program {
        Program::Host(program) => program,
        _ => unreachable!("the task is of the route of host programs, and its program was checked"),
    }
}
