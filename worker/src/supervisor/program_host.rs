//! What this worker runs host programs with: cgroups that limit them, and podman for those in containers. Both are checked at the start.

use std::sync::Arc;

use gpufleet_schema::{HostProgram, JobId};
use tracing::info;

use super::{WorkerError, program_files};
use crate::{
    config::{Config, Isolation, PoolSpec, ProgramAllowance},
    program::{self, Cgroup, Cgroups, ContainerSpec, Place, Podman, ProgramLimits},
};

/// The name of the container and the cgroup of the check.
const TRIAL: &str = "gpufleet-check";

#[derive(Debug, Default)]
pub(super) struct ProgramHost {
    /// None if the machine lets this worker make none, and no pool insists on limits.
    pub(super) cgroups: Option<Arc<Cgroups>>,
    /// None if no pool runs programs in containers.
    podman: Option<Podman>,
}

impl ProgramHost {
    /// Checks that this machine can isolate the pools' host programs, if there are some, and removes what killed workers left.
    pub(super) fn prepare(config: &Config) -> Result<Self, WorkerError> {
        let pools: Vec<&PoolSpec> = config.pools.iter().filter(|pool| pool.programs.count > 0).collect();
        if pools.is_empty() {
            return Ok(Self::default());
        }
        program::support().map_err(WorkerError::Programs)?;
        let cgroups = limiting(&pools)?;
        let folder = &config.program_folder;
        program_files::remove_left_behind(folder, cgroups.as_deref())
            .map_err(|source| WorkerError::ProgramFolder { path: folder.display().to_string(), source })?;
        let mut host = Self { cgroups, podman: None };
        if let Some(pool) = pools.iter().find(|pool| pool.programs.isolation == Isolation::Podman) {
            if !rustix::process::geteuid().is_root() {
                return Err(WorkerError::Programs(format!(
                    "pool {} runs them in containers, which only a worker that is root can do; run it as root, or leave \
                     program-isolation=podman out",
                    pool.name
                )));
            }
            host.podman = Some(Podman::find(&config.podman, &config.images).map_err(WorkerError::Programs)?);
            host.try_container(config, &pool.programs)?;
        }
        let environments: Vec<&str> = config.environments.keys().map(String::as_str).collect();
        info!(
            environments = environments.join(", "),
            images = config.images.join(", "),
            folder = %folder.display(),
            "host programs can run"
        );
        Ok(host)
    }

    fn try_container(&self, config: &Config, allowance: &ProgramAllowance) -> Result<(), WorkerError> {
        let failed = |error: std::io::Error| WorkerError::Programs(format!("failed to make a cgroup: {error}"));
        let name = format!("{TRIAL}-{}", std::process::id());
        let cgroup = self.cgroups.as_ref().map(|cgroups| cgroups.create(&name, limits(allowance))).transpose();
        let cgroup = cgroup.map_err(failed)?;
        let image = config.images.first().expect("a pool with containers has an image");
        let container = self.container(image, name, allowance, cgroup.as_ref());
        program::container_support(None, container, &config.program_folder).map_err(WorkerError::Programs)
    }

    /// Returns where a program runs, and the files by which it enters its cgroup if podman does not make one for it.
    pub(super) fn place(
        &self,
        config: &Config,
        program: &HostProgram,
        job_id: JobId,
        allowance: &ProgramAllowance,
        cgroup: Option<&Cgroup>,
    ) -> (Place, Vec<std::path::PathBuf>) {
        if let Some(image) = &program.image {
            let container = self.container(image, format!("gpufleet-{job_id}"), allowance, cgroup);
            return (Place::Container(Box::new(container)), Vec::new());
        }
        let environment = program.environment.as_ref().and_then(|name| config.environments.get(name));
        let environment = environment.expect("the environment was checked").clone();
        (Place::Environment(environment), cgroup.map(Cgroup::entrances).unwrap_or_default())
    }

    fn container(
        &self,
        image: &str,
        name: String,
        allowance: &ProgramAllowance,
        cgroup: Option<&Cgroup>,
    ) -> ContainerSpec {
        let shows_limit = cgroup.is_some_and(Cgroup::is_unified);
        ContainerSpec {
            podman: self.podman.clone().expect("a worker with containers has podman"),
            image: image.to_owned(),
            name,
            cgroup_parent: cgroup.map(Cgroup::path),
            memory_bytes: allowance.memory_bytes().filter(|_| shows_limit),
            shm_bytes: allowance.shared_memory_bytes(),
            pids: allowance.pids_max(),
        }
    }
}

/// Returns the limits of a pool's programs.
pub(super) fn limits(allowance: &ProgramAllowance) -> ProgramLimits {
    ProgramLimits { memory_bytes: allowance.memory_bytes(), pids: allowance.pids_max() }
}

/// Finds the cgroups, which a pool may insist on.
fn limiting(pools: &[&PoolSpec]) -> Result<Option<Arc<Cgroups>>, WorkerError> {
    match (Cgroups::find(), pools.iter().find(|pool| pool.programs.insists_on_limits())) {
        (Ok(cgroups), _) => Ok(Some(Arc::new(cgroups))),
        (Err(reason), None) => {
            info!(%reason, "host programs have no limits of memory and processes");
            Ok(None)
        }
        (Err(reason), Some(pool)) => Err(WorkerError::Programs(format!(
            "{reason}; pool {} limits its programs: switch that off with program-memory=off,program-pids=off, or run the worker where it can \
             make cgroups",
            pool.name
        ))),
    }
}
