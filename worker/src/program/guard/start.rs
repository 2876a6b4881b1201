//! Starts the init of a program.

use std::{
    fs::File,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::Child,
};

use rustix::{
    io::write,
    process::{Signal, set_parent_process_death_signal},
};

use super::{GuardError, folder::WorkFolder};
use crate::{
    ipc::frame::FrameReader,
    own_executable,
    program::{
        message::{FromInit, InitSpec, Place, ToInit},
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
    /// Starts the init, or the launcher of a container in its place, and waits until it has given up what the program may not have. `cgroup`
    /// has the files by which the init enters its cgroup.
    pub(super) fn start(spec: InitSpec, cgroup: Vec<File>, folder: &mut WorkFolder) -> Result<Self, GuardError> {
        let (socket, theirs) = UnixStream::pair().map_err(GuardError::Start)?;
        let output = folder.output_writer.take().expect("a guard starts one init");
        let role = match spec.place {
            Place::Environment(_) => "program-init",
            Place::Container(_) => "program-launcher",
        };
        let mut command = own_executable::command(None, role);
        command.stdin(OwnedFd::from(theirs)).stdout(output);
        let prepare = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            for entrance in &cgroup {
                write(entrance, b"0")?;
            }
            namespaces::mount_proc()
        };
        // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
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
        ToInit::Prepare(Box::new(spec)).send(&self.socket, None)?;
        for (message, file) in [(ToInit::Upload, folder.upload.take()), (ToInit::Archive, folder.archive.take())] {
            if let Some(file) = file {
                message.send(&self.socket, Some(file.into()))?;
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
