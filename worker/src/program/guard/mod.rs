//! The guard: the process between the supervisor and a program. It is outside the program's PID namespace, and starts the init in it.
//!
//! | part | does |
//! | --- | --- |
//! | [`folder`] | prepares the work folder, and opens the files in it |
//! | [`start`] | starts the init |
//! | [`relay`] | passes on messages and output until the init has ended |
//! | [`log`] | keeps the output in a file |

use std::{env, fmt::Display, fs::File, io, os::unix::net::UnixStream, process::ExitCode};

use rustix::{fs::Mode, process::umask};
use tokio::runtime;

use self::{folder::WorkFolder, relay::Container, start::Init};
use super::{
    device, environment,
    message::{FromGuard, InitSpec, Place, ProgramSpec},
    namespaces::{self, NamespaceError},
    podman,
    view::{FILES_OF_LAUNCHER, View, ViewError},
};
use crate::{
    executor::ignore_signals,
    ipc::frame::{self, FrameError, FrameReader},
    own_executable,
    privileges::{self, PrivilegeError},
};

/// How NVIDIA's container toolkit names its devices.
const CDI_KIND: &str = "nvidia.com/gpu";

mod folder;
mod log;
mod relay;
mod start;

/// The command line of a guard. Its socket to the supervisor is its standard input.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// Why a guard can't run its program.
#[derive(Debug, thiserror::Error)]
enum GuardError {
    #[error("the supervisor sent no program: {0}")]
    NoProgram(#[source] FrameError),
    #[error("the supervisor has ended")]
    Orphaned,
    #[error("failed to {what} in the work folder {folder}: {source}; check the worker's disk and its permissions")]
    Folder { what: &'static str, folder: String, source: io::Error },
    #[error("{0}")]
    Device(String),
    #[error("failed to open the cgroup of a program: {0}; start the program again")]
    Cgroup(#[source] io::Error),
    #[error(transparent)]
    Namespaces(#[from] NamespaceError),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    #[error(
        "failed to start the first process of a program: {0}; a /proc that a container or service hides in parts (ProtectKernelTunables, \
         ProtectKernelLogs, ProcSubset) can't be mounted in a user namespace"
    )]
    Start(#[source] io::Error),
    #[error("{0}")]
    Init(String),
    #[error("failed to talk to the first process of a program: {0}")]
    Socket(#[from] FrameError),
    #[error("failed to start the guard of a program: {0}")]
    Runtime(#[source] io::Error),
}

/// Runs a guard. Only the supervisor starts one.
pub fn main(_: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-guard");
    ignore_signals();
    let locked = privileges::close_inherited();
    let Ok(supervisor) = own_executable::supervisor_socket() else {
        eprintln!("only `gpufleet-worker run` may start this subcommand: standard input is not a socket");
        return ExitCode::FAILURE;
    };
    match locked.map_err(GuardError::from).and_then(|()| guard(supervisor.try_clone().map_err(GuardError::Runtime)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&supervisor, &error);
            ExitCode::FAILURE
        }
    }
}

fn complain(supervisor: &UnixStream, error: &impl Display) {
    eprintln!("{error}");
    // Without a reader, the supervisor has ended.
    drop(frame::write(supervisor, &FromGuard::Failed(error.to_string())));
}

/// Isolates the program, and runs it when the supervisor says so. This process has one thread, as its namespaces require.
fn guard(supervisor: UnixStream) -> Result<(), GuardError> {
    let spec = first_message(&supervisor)?;
    // The folders that are made for the program must be open to its user.
    umask(Mode::from_raw_mode(0o022));
    // The descriptors are taken before the folder is covered.
    let (user, group) = privileges::ids_after_change(spec.user.as_deref())?;
    let mut folder = WorkFolder::open(&spec, (user, group))?;
    let cgroup = spec.cgroup.iter().map(File::create).collect::<Result<Vec<_>, _>>();
    let cgroup = cgroup.map_err(GuardError::Cgroup)?;
    let devices = if spec.driver_folder.is_some() { Ok(Vec::new()) } else { device::nodes(&spec.device_uuid) };
    let devices = devices.map_err(GuardError::Device)?;
    let view = match &spec.place {
        Place::Environment(environment) => {
            Some(View::of(&spec, environment, &folder.files, user != rustix::process::geteuid()))
        }
        Place::Container(_) => None,
    };
    let container = Container::of(&spec);
    let init = InitSpec {
        variables: environment::variables(&spec, &folder.files),
        files: match view {
            Some(_) => folder.files.clone(),
            None => FILES_OF_LAUNCHER.into(),
        },
        storage: folder.files.with_file_name("containers"),
        readable: view.as_ref().map(View::readable).unwrap_or_default(),
        // A machine without NVIDIA's driver has no GPU to name.
        gpu: (!devices.is_empty()).then(|| format!("{CDI_KIND}={}", spec.device_uuid)),
        devices,
        command: spec.command,
        download: spec.download,
        place: spec.place,
        driver_folder: spec.driver_folder,
        network: spec.network,
        user: spec.user.clone(),
        file_bytes_max: spec.file_bytes_max,
    };
    env::set_current_dir("/").map_err(GuardError::Start)?;
    namespaces::enter(spec.network)?;
    match view {
        Some(view) => {
            view.make()?;
            privileges::refuse_new()?;
        }
        // podman makes the view of a container, and needs root for it.
        None => {
            View::make_for_launcher(&folder.files, &podman::STATE)?;
            privileges::hide()?;
        }
    }
    let init = Init::start(init, cgroup, &mut folder)?;
    privileges::leave_root(spec.user.as_deref())?;
    let ready = FromGuard::Ready { init: init.pid() };
    frame::write(&supervisor, &ready)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(GuardError::Runtime)?;
    // The supervisor sees the end of its socket.
    if let Err(error) = runtime.block_on(relay::run(supervisor, init, folder, container)) {
        eprintln!("the guard of a program ended: {error}");
    }
    Ok(())
}

fn first_message(supervisor: &UnixStream) -> Result<ProgramSpec, GuardError> {
    let socket = supervisor.try_clone().map_err(GuardError::Runtime)?;
    match FrameReader::over(socket).read() {
        Ok(Some((spec, _))) => Ok(spec),
        Ok(None) => Err(GuardError::Orphaned),
        Err(error) => Err(GuardError::NoProgram(error)),
    }
}
