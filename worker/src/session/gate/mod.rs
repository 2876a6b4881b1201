//! The gate: the process to which the client of a session connects. It has no device.
//!
//! | part | does |
//! | --- | --- |
//! | [`identity`] | makes the certificate and the token |
//! | [`door`] | lets in the connections that show the token |
//! | [`control`] | talks to the client |
//! | [`program`] | runs an engine for a process of the program |
//! | [`keeper`] | knows the state of the session, and talks to the supervisor |

use std::{
    io::{self, Write as _},
    net::TcpListener,
    os::unix::net::UnixStream,
    process::ExitCode,
};

use gpufleet_schema::session::encode;
use tokio::runtime;

use self::{
    door::Door,
    identity::{Identity, IdentityError},
    keeper::Keeper,
    program::EngineOptions,
};
use super::{
    driver_file::DriverFile,
    listen::Listen,
    message::{FromGate, GateReady},
};
use crate::{
    executor::{CudaSpec, StartError, ignore_signals},
    ipc::message::Refusal,
    own_executable,
    privileges::{self, PrivilegeError},
};

mod control;
mod door;
mod identity;
mod keeper;
mod program;

/// The command line of a gate. Its socket to the supervisor is its standard input.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// CUDA driver of the session
    #[arg(long)]
    cuda: CudaSpec,
    /// UUID of the device
    #[arg(long)]
    uuid: String,
    /// Device memory of the lease, in bytes
    #[arg(long)]
    memory_bytes: u64,
    /// Address and ports to listen on; the first free port is taken
    #[arg(long)]
    listen: Listen,
    /// User to run as when started by root
    #[arg(long)]
    user: Option<String>,
}

/// Why a gate can't start.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error("{}", StartError::from(.0.clone()))]
    Refused(Refusal),
    #[error("failed to listen on {listen}: {source}; choose other ports with --session-listen")]
    Bind { listen: Listen, source: io::Error },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("failed to start the session's process: {0}")]
    Runtime(#[from] io::Error),
}

impl From<PrivilegeError> for SetupError {
    fn from(error: PrivilegeError) -> Self {
        Self::Refused(error.into())
    }
}

/// A gate before its first client.
struct Prepared {
    listener: TcpListener,
    identity: Identity,
    engine: EngineOptions,
}

/// Runs a gate. Only the supervisor starts one.
pub fn main(args: Args) -> ExitCode {
    own_executable::show_as("gpufleet-gate");
    ignore_signals();
    let locked = privileges::close_inherited().and_then(|()| privileges::refuse_new());
    let Ok(supervisor) = own_executable::supervisor_socket() else {
        eprintln!("only `gpufleet-worker run` may start this subcommand: standard input is not a socket");
        return ExitCode::FAILURE;
    };
    match locked.map_err(SetupError::from).and_then(|()| open(args, &supervisor)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            // Without a reader, the supervisor has ended.
            drop((&supervisor).write_all(&encode(&FromGate::Failed(error.to_string()))));
            ExitCode::FAILURE
        }
    }
}

/// Opens the gate, and keeps it until the session ends.
fn open(args: Args, supervisor: &UnixStream) -> Result<(), SetupError> {
    let Prepared { listener, identity, engine } = prepare(args)?;
    let (port, certificate) = (listener.local_addr()?.port(), identity.certificate.clone());
    listener.set_nonblocking(true)?;
    let incoming = supervisor.try_clone()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let door = Door::new(tokio::net::TcpListener::from_std(listener)?, &identity);
        let ready = GateReady { port, certificate, token: *identity.token };
        (&mut &*supervisor).write_all(&encode(&FromGate::Ready(ready)))?;
        incoming.set_nonblocking(true)?;
        Keeper::new(engine, tokio::net::UnixStream::from_std(incoming)?).keep(door).await;
        Ok(())
    })
}

/// Takes what needs privileges, drops them, and makes the rest. The process has one thread.
fn prepare(args: Args) -> Result<Prepared, SetupError> {
    let Args { cuda, uuid, memory_bytes, listen, user } = args;
    let file = DriverFile::open(&cuda).map_err(SetupError::Refused)?;
    let bind = || listen.bind().map_err(|source| SetupError::Bind { listen: listen.clone(), source });
    let bound_as_root = if listen.needs_root() { Some(bind()?) } else { None };
    privileges::leave_root(user.as_deref())?;
    let listener = bound_as_root.map_or_else(bind, Ok)?;
    let engine = EngineOptions { cuda, file, uuid, memory_bytes, user };
    Ok(Prepared { listener, identity: Identity::new()?, engine })
}
