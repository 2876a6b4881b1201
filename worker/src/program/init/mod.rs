//! The init: the first process in a program's PID namespace. It runs as the program's user and has no more rights than the program. The
//! command of a program in a container is the launcher's; its processes are in the same namespace.
//!
//! | part | does |
//! | --- | --- |
//! | [`confinement`] | gives up what the program may not have |
//! | [`unpack`] | unpacks the user's files |
//! | [`command`] | starts the command |
//! | [`stopping`] | listens to the guard, and stops the program when it says so |
//! | [`selection`], [`pack`] | pack the files that come back |

use std::{
    env,
    fs::File,
    io::{self, Write as _, stdout},
    os::unix::net::UnixStream,
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{Pid, WaitOptions, WaitStatus, wait},
};

use self::{selection::Selection, stopping::Stopping};
use super::{
    environment,
    message::{FromInit, InitSpec, Place, ToInit},
};
use crate::{
    executor::{bounds, ignore_signals},
    ipc::frame::{self, FrameReader},
    own_executable, privileges,
};

mod command;
mod confinement;
mod pack;
mod selection;
mod stopping;
mod unpack;

/// Maximum number of lines in the output that say which files were left out.
const NOTES_MAX: usize = 20;

/// The command line of an init. Its socket to the guard is its standard input, and the program's output its standard output.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// What an init works with.
struct Program {
    spec: InitSpec,
    selection: Selection,
    upload: Option<File>,
    archive: Option<File>,
    guard: UnixStream,
    /// The exit code of the command in a container.
    ended: Receiver<i32>,
}

/// Runs an init. Only a guard starts one.
pub fn main(_: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-init");
    ignore_signals();
    bounds::give_way_when_memory_runs_out();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the first process of a program ended: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    privileges::close_inherited().map_err(io::Error::other)?;
    let guard = own_executable::supervisor_socket()?;
    let mut reader = FrameReader::over(guard.try_clone()?);
    let ToInit::Prepare(spec) = next(&mut reader)?.0 else { return Err(io::ErrorKind::InvalidData.into()) };
    if let Err(error) = confinement::enter(&spec).and_then(|()| Ok(env::set_current_dir(&spec.files)?)) {
        return say(&guard, &FromInit::Failed(error.to_string()));
    }
    say(&guard, &FromInit::Prepared)?;
    let (mut upload, mut archive) = (None, None);
    loop {
        match next(&mut reader)? {
            (ToInit::Upload, file) => upload = file.map(File::from),
            (ToInit::Archive, file) => archive = file.map(File::from),
            (ToInit::Go, _) => break,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    let stopping = Arc::<Stopping>::default();
    let (sender, ended) = mpsc::channel();
    stopping.listen(reader, sender)?;
    let last = match Selection::of(&spec.download) {
        Ok(selection) => {
            Program { spec: *spec, selection, upload, archive, guard: guard.try_clone()?, ended }.run(&stopping)?
        }
        Err(reason) => FromInit::Refused(reason),
    };
    say(&guard, &last)
}

fn next(reader: &mut FrameReader) -> io::Result<(ToInit, Option<std::os::fd::OwnedFd>)> {
    reader.read().map_err(io::Error::other)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn say(guard: &UnixStream, message: &FromInit) -> io::Result<()> {
    frame::write(guard, message).map_err(io::Error::other)
}

impl Program {
    /// Runs the program from its files to its files. Returns the last message.
    fn run(mut self, stopping: &Stopping) -> io::Result<FromInit> {
        let spec = &self.spec;
        let upload = self.upload.take();
        let prepared = environment::check(&spec.variables).and_then(|()| match upload {
            Some(archive) => {
                unpack::unpack(archive, &spec.files, spec.file_bytes_max).map_err(|error| error.to_string())
            }
            None => Ok(()),
        });
        if let Err(reason) = prepared {
            return Ok(FromInit::Refused(reason));
        }
        let (exit_code, signal) = if stopping.has_begun() {
            (None, Some(libc::SIGTERM))
        } else if let Place::Container(_) = &spec.place {
            (Some(self.in_container()?), None)
        } else {
            let command = match command::spawn(spec) {
                Ok(command) => command,
                Err(reason) => return Ok(FromInit::Refused(reason)),
            };
            say(&self.guard, &FromInit::Started)?;
            stopping.catch_up();
            let status = end_of(command)?;
            (status.exit_status(), status.terminating_signal())
        };
        kill_all()?;
        let packed = self.archive.take().map(|archive| self.pack(archive)).transpose();
        Ok(FromInit::Ended { exit_code, signal, packed })
    }

    /// Has the launcher run the command in a container, whose processes are in the namespace of this one. Returns the exit code.
    fn in_container(&self) -> io::Result<i32> {
        // The kernel reaps orphans of the command.
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        say(&self.guard, &FromInit::Unpacked)?;
        self.ended.recv().map_err(io::Error::other)
    }

    fn pack(&self, archive: File) -> Result<u64, String> {
        let mut left_out = 0;
        let note = |line: &str| {
            left_out += 1;
            if left_out <= NOTES_MAX {
                // Without a reader, the program's output has ended.
                drop(writeln!(stdout(), "gpufleet: {line}"));
            }
        };
        let packed = pack::pack(&self.spec.files, &self.selection, &archive, self.spec.file_bytes_max, note);
        if left_out > NOTES_MAX {
            drop(writeln!(stdout(), "gpufleet: {} more files were left out", left_out - NOTES_MAX));
        }
        packed.map_err(|error| {
            // What is there of the archive is of no use, and its disk may be full.
            drop(archive.set_len(0));
            error.to_string()
        })
    }
}

/// Waits for the end of the command, and meanwhile reaps orphans.
fn end_of(command: Pid) -> io::Result<WaitStatus> {
    loop {
        if let Some((child, status)) = retry_on_intr(|| wait(WaitOptions::empty()))?
            && child == command
        {
            return Ok(status);
        }
    }
}

/// Kills all other processes in the namespace, and reaps them.
fn kill_all() -> io::Result<()> {
    loop {
        stopping::signal_all(libc::SIGKILL);
        match retry_on_intr(|| wait(WaitOptions::empty())) {
            Ok(_) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
