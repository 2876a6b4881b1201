//! The file of a session's driver. The gate opens it while it may be root, because it may be in root's home folder, and sends it to each
//! engine.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use libloading::Library;

use crate::{
    executor::{
        CudaSpec,
        library::{self, Opened},
    },
    ipc::{
        frame::{self, Frame, FrameError, FrameReader},
        message::Refusal,
    },
    privileges::PrivilegeError,
};

/// The file of a driver that is chosen by file. The loader finds NVIDIA's driver by its name.
#[derive(Debug)]
pub(super) struct DriverFile(Option<Opened>);

impl DriverFile {
    /// Opens the file with the privileges that the process has now.
    pub(super) fn open(cuda: &CudaSpec) -> Result<Self, Refusal> {
        Ok(Self(match cuda {
            CudaSpec::System => None,
            CudaSpec::Emulated => Some(library::emulator()?),
            CudaSpec::Auto => library::emulator().ok(),
            CudaSpec::Path(path) => Some(Opened::find(path)?),
        }))
    }

    /// Sends the file to an engine.
    pub(super) fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let path = self.0.as_ref().map(|opened| &opened.path);
        let file = self.0.as_ref().map(|opened| opened.file.try_clone()).transpose()?;
        let Frame { bytes, descriptor } = Frame::encode(&path, file.map(OwnedFd::from)).map_err(io::Error::other)?;
        match frame::send(socket, &bytes, descriptor.as_ref().map(AsFd::as_fd))? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Receives the file from the gate.
    pub(super) fn receive(socket: UnixStream) -> Result<Self, FrameError> {
        let closed = || FrameError::Io(io::ErrorKind::UnexpectedEof.into());
        let (path, file) = FrameReader::over(socket).read::<Option<PathBuf>>()?.ok_or_else(closed)?;
        Ok(Self(path.zip(file).map(|(path, file)| Opened { path, file: file.into() })))
    }

    /// Loads the driver, and drops root with `leave_root` before the first driver call.
    pub(super) fn load(
        self,
        cuda: &CudaSpec,
        leave_root: impl FnOnce() -> Result<(), PrivilegeError>,
    ) -> Result<Library, Refusal> {
        let (library, _) = match (cuda, self.0) {
            (CudaSpec::System, _) | (CudaSpec::Auto, None) => {
                let system = library::system()?;
                leave_root()?;
                system
            }
            (CudaSpec::Auto, Some(emulator)) => {
                let system = library::system().ok();
                leave_root()?;
                match system.filter(|(library, _)| library::has_device(library)) {
                    Some(system) => system,
                    None => emulator.load()?,
                }
            }
            (CudaSpec::Emulated | CudaSpec::Path(_), Some(file)) => {
                let loaded = file.load()?;
                leave_root()?;
                loaded
            }
            (CudaSpec::Emulated | CudaSpec::Path(_), None) => {
                return Err(Refusal::NoDriver { hint: "the gate sent no driver".to_owned() });
            }
        };
        Ok(library)
    }
}
