//! Starts the init of a program.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::Child,
};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::{GuardError, folder::WorkFolder};
use crate::{
    ipc::frame::{self, Frame, FrameError, FrameReader},
    own_executable,
    program::{
        message::{FromInit, InitSpec, ToInit},
        namespaces,
    },
};

/// An init that waits in its namespaces.
#[derive(Debug)]
pub(super) struct Init {
    pub(super) child: Child,
    pub(super) socket: UnixStream,
}

impl Init {
    /// Starts the init, and waits until it has given up what the program may not have.
    pub(super) fn start(spec: InitSpec, folder: &mut WorkFolder) -> Result<Self, GuardError> {
        let (socket, theirs) = UnixStream::pair().map_err(GuardError::Start)?;
        let output = folder.output_writer.take().expect("a guard starts one init");
        let mut command = own_executable::command(None, "program-init");
        command.stdin(OwnedFd::from(theirs)).stdout(output);
        let prepare = || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            namespaces::mount_proc()
        };
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().map_err(GuardError::Start)?;
        // The command holds copies of the init's ends of pipe and socket, which would keep them open.
        drop(command);
        let init = Self { child, socket };
        init.prepare(spec, folder)?;
        Ok(init)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn prepare(&self, spec: InitSpec, folder: &mut WorkFolder) -> Result<(), GuardError> {
        frame::write(&self.socket, &ToInit::Prepare(Box::new(spec)))?;
        for (message, file) in [(ToInit::Upload, folder.upload.take()), (ToInit::Archive, folder.archive.take())] {
            if let Some(file) = file {
                send(&self.socket, &message, file.into())?;
            }
        }
        let socket = self.socket.try_clone().map_err(GuardError::Start)?;
        match FrameReader::over(socket).read()? {
            Some((FromInit::Prepared, _)) => Ok(()),
            Some((FromInit::Failed(reason), _)) => Err(GuardError::Init(reason)),
            _ => Err(GuardError::Init("the first process of a program died before it was ready".to_owned())),
        }
    }
}

/// Sends a message with a descriptor.
fn send(socket: &UnixStream, message: &ToInit, file: OwnedFd) -> Result<(), FrameError> {
    let Frame { bytes, descriptor } = Frame::encode(message, Some(file))?;
    match frame::send(socket, &bytes, descriptor.as_ref().map(AsFd::as_fd))? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(FrameError::Io(io::ErrorKind::WriteZero.into())),
    }
}
