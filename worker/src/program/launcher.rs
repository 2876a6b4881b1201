//! The launcher: the first process of the namespaces of a program in a container. It is root there, and has podman make and run the container.
//!
//! The launcher starts an init in a PID namespace of its own, which the container joins, and passes on the messages between guard and init.
//! So the init stops the program and deals with its files as it does without a container, and the end of the launcher ends podman, the init
//! and the program.
//!
//! | step | by |
//! | --- | --- |
//! | files are unpacked | init |
//! | the container is made, and its processes are limited | `podman create` |
//! | its first process waits in the container | `podman init` |
//! | the command runs | `podman start` |
//! | the command has ended | the end of podman's monitor, `podman inspect` |
//! | what is left is killed, and files are packed | init |

use std::{
    fs,
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command, ExitCode},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::{
    io::retry_on_intr,
    process::{Pid, WaitOptions, wait},
};

use super::{
    message::{ContainerSpec, FromInit, InitSpec, Place, ToInit},
    namespaces, podman, signals,
};
use crate::{
    executor::ignore_signals,
    ipc::frame::{self, FrameReader},
    own_executable, privileges,
};

/// The exit code of a command that ended because of SIGTERM.
const TERMINATED: i32 = 128 + libc::SIGTERM;

/// The command line of a launcher. Its socket to the guard is its standard input, and the program's output its standard output.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// The init, which may also get messages while the container runs.
struct Init {
    child: Child,
    socket: Mutex<UnixStream>,
    is_stopping: AtomicBool,
}

/// Runs a launcher. Only a guard starts one.
pub fn main(_: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-launch");
    ignore_signals();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the launcher of a program ended: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    privileges::close_inherited().and_then(|()| privileges::hide()).map_err(io::Error::other)?;
    let guard = own_executable::supervisor_socket()?;
    let mut orders = FrameReader::over(guard.try_clone()?);
    let ToInit::Prepare(spec) = next(&mut orders)?.0 else { return Err(io::ErrorKind::InvalidData.into()) };
    let Place::Container(container) = &spec.place else { return Err(io::ErrorKind::InvalidData.into()) };
    let (init, answers) = Init::start()?;
    init.send(&ToInit::Prepare(spec.clone()), None)?;
    let mut answers = FrameReader::over(answers);
    let prepared = answer(&mut answers)?;
    say(&guard, &prepared)?;
    if !matches!(prepared, FromInit::Prepared) {
        return Ok(());
    }
    let init = Arc::new(init);
    pass_on(orders, Arc::clone(&init))?;
    let last = match answer(&mut answers)? {
        FromInit::Unpacked => {
            let container = Container { spec: &spec, container, init: &init, guard: &guard };
            match container.run().unwrap_or_else(|error| Err(container.failed("run", &error.to_string()))) {
                Ok(exit_code) => {
                    init.send(&ToInit::ContainerEnded { exit_code }, None)?;
                    answer(&mut answers)?
                }
                Err(last) => last,
            }
        }
        last => last,
    };
    say(&guard, &last)
}

/// Starts the thread that passes on the guard's messages. When the guard has ended, it ends this process, and with it everything else.
fn pass_on(mut orders: FrameReader, init: Arc<Init>) -> io::Result<()> {
    let pass_on = move || {
        while let Ok((order, file)) = next(&mut orders) {
            if matches!(order, ToInit::Stop { .. }) {
                init.is_stopping.store(true, Ordering::SeqCst);
            }
            if init.send(&order, file).is_err() {
                break;
            }
        }
        // SAFETY: _exit ends the process without running any of its code.
        unsafe { libc::_exit(1) }
    };
    thread::Builder::new().name("orders".into()).spawn(pass_on).map(drop)
}

fn next(orders: &mut FrameReader) -> io::Result<(ToInit, Option<OwnedFd>)> {
    orders.read().map_err(io::Error::other)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn answer(answers: &mut FrameReader) -> io::Result<FromInit> {
    let answer = answers.read().map_err(io::Error::other)?;
    answer.map(|(answer, _)| answer).ok_or_else(|| io::Error::other("the init died"))
}

fn say(guard: &UnixStream, message: &FromInit) -> io::Result<()> {
    frame::write(guard, message).map_err(io::Error::other)
}

impl Init {
    /// Starts the init as the first process of a PID namespace. Returns it with the socket for its messages.
    fn start() -> io::Result<(Self, UnixStream)> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = own_executable::command(None, "program-init");
        command.stdin(OwnedFd::from(theirs));
        let child = namespaces::start_in_another(&mut command)?;
        let answers = socket.try_clone()?;
        Ok((Self { child, socket: Mutex::new(socket), is_stopping: AtomicBool::new(false) }, answers))
    }

    fn send(&self, order: &ToInit, file: Option<OwnedFd>) -> io::Result<()> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        order.send(&socket, file).map_err(io::Error::other)
    }
}

/// A container and those who are told about it.
struct Container<'a> {
    spec: &'a InitSpec,
    container: &'a ContainerSpec,
    init: &'a Init,
    guard: &'a UnixStream,
}

impl Container<'_> {
    /// Runs the command to its end. Returns its exit code, or the last message if it did not run.
    fn run(&self) -> io::Result<Result<i32, FromInit>> {
        if let Err(said) = self.create()? {
            return Ok(Err(self.failed("make", &said)));
        }
        // What is wrong with the command is in the program's output.
        if !self.with_output("init")?.status()?.success() {
            return Ok(Err(FromInit::NotStarted));
        }
        let monitor = monitor()?;
        let mut output = io::stdout();
        output.write_all(&[podman::OUTPUT_END]).and_then(|()| output.flush())?;
        say(self.guard, &FromInit::Started)?;
        if let Err(said) = self.ask(&["start"]) {
            return match self.init.is_stopping.load(Ordering::SeqCst) {
                true => Ok(Ok(TERMINATED)),
                false => Ok(Err(self.failed("start", &said))),
            };
        }
        self.init.send(&ToInit::ContainerStarted, None)?;
        self.end_of(monitor)?;
        let code = self.ask(&["inspect", "--format", "{{.State.ExitCode}}"]);
        let code = code.and_then(|code| code.trim().parse().map_err(|_| format!("its exit code is {code:?}")));
        Ok(code.map_err(|said| self.failed("inspect", &said)))
    }

    fn create(&self) -> io::Result<Result<String, String>> {
        let (user, group) = privileges::ids_after_change(self.spec.user.as_deref()).map_err(io::Error::other)?;
        let mut podman = self.podman();
        podman::create(&mut podman, self.spec, self.container, (user.as_raw(), group.as_raw()), self.init.child.id());
        Ok(podman::run(&mut podman))
    }

    /// Runs a subcommand of podman for this container.
    fn ask(&self, subcommand: &[&str]) -> Result<String, String> {
        podman::run(self.podman().args(subcommand).arg(&self.container.name))
    }

    fn failed(&self, what: &str, said: &str) -> FromInit {
        let image = &self.container.image;
        FromInit::Failed(format!("podman could not {what} a container of the image {image}: {said}"))
    }

    /// Returns a podman whose processes have the usual signals. The container's are among them.
    fn podman(&self) -> Command {
        let mut podman = self.container.podman.within(&self.spec.storage);
        let prepare = || {
            signals::restore();
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes system calls only.
        unsafe { podman.pre_exec(prepare) };
        podman
    }

    /// Returns a podman that writes to the program's output, as the container does.
    fn with_output(&self, subcommand: &str) -> io::Result<Command> {
        let errors = io::stdout().as_fd().try_clone_to_owned()?;
        let mut podman = self.podman();
        podman.args([subcommand, &self.container.name]).stderr(errors);
        Ok(podman)
    }

    /// Waits for the end of podman's monitor, which ends after the container. Orphans of podman are reaped meanwhile.
    fn end_of(&self, monitor: Pid) -> io::Result<()> {
        let init = self.init.child.id();
        loop {
            match retry_on_intr(|| wait(WaitOptions::empty()))? {
                Some((child, _)) if child == monitor => return Ok(()),
                Some((child, _)) if child.as_raw_nonzero().get().cast_unsigned() == init => {
                    return Err(io::Error::other("the init died"));
                }
                _ => {}
            }
        }
    }
}

/// Returns the process that waits for the end of the container. It is a child of this process, because podman has left it.
fn monitor() -> io::Result<Pid> {
    let text = fs::read_to_string(podman::MONITOR)?;
    text.trim().parse().ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
