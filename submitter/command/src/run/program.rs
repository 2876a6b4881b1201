//! The command: starts it, passes signals on, and waits for its end.

use std::{fmt, io::ErrorKind, os::unix::process::ExitStatusExt as _, process::ExitStatus};

use gpufleet::session::{Rejected, SessionFolder};
use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use tokio::{
    process::{Child, Command},
    sync::mpsc,
};

use super::{
    CommandLine,
    lines::{self, Lines},
    signals::{Received, Sender, Signals},
};
use crate::{complaint::Complaint, exit::Exit};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    Code(i32),
    Signal(i32),
}

/// Starts the command in the foreground, with this process's terminal.
pub fn start(command: &CommandLine, folder: &SessionFolder) -> Result<Child, Complaint> {
    let (program, arguments) = command.split_first().expect("clap requires a command");
    let environment = folder.environment(std::env::var_os("LD_LIBRARY_PATH").as_deref());
    let started = Command::new(program).args(arguments).envs(environment).spawn();
    started.map_err(|error| {
        let program = program.to_string_lossy();
        match error.kind() {
            ErrorKind::NotFound => Complaint::new(Exit::CommandNotFound, format!("command {program} was not found"))
                .hint("check its name and PATH"),
            _ => Complaint::new(Exit::CommandNotExecutable, format!("failed to execute {program}: {error}"))
                .hint("check that it is a program, and that you may execute it"),
        }
    })
}

/// Waits for the end of the command. The processes that get no device are named meanwhile.
pub async fn wait(
    child: &mut Child,
    signals: &mut Signals,
    mut rejections: mpsc::UnboundedReceiver<Rejected>,
    lines: Lines,
) -> Result<ProgramEnd, Complaint> {
    loop {
        tokio::select! {
            biased;
            received = signals.next() => pass_on(received, child),
            status = child.wait() => {
                return status.map(ProgramEnd::of).map_err(|error| {
                    Complaint::new(Exit::Internal, format!("failed to wait for the command: {error}"))
                });
            }
            Some(rejected) = rejections.recv() => lines.warn(&lines::rejected(&rejected)),
        }
    }
}

/// Sends a signal on to the command, unless it has got the signal already: programs give up at once at a second Ctrl-C.
fn pass_on(Received { signal, sender }: Received, child: &Child) {
    let Some(command) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else { return };
    let has_it = match sender {
        // A terminal sends its signals to a process group.
        Sender::Kernel => getpgid(Some(command)).is_ok_and(|group| group == getpgrp()),
        Sender::Process(process) => process == Some(command),
    };
    if !has_it {
        // It fails only if the command has ended.
        let _ended = kill_process(command, signal);
    }
}

impl ProgramEnd {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }

    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) => None,
        }
    }

    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }

    /// The exit code that stands for it, as shells have it.
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        // An exit code has eight bits.
        code as u8
    }

    /// Whether the program gave up by itself. A person or a system sends the other signals.
    pub fn is_own_failure(self) -> bool {
        let faults = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::TRAP];
        match self {
            Self::Code(code) => code != 0,
            Self::Signal(signal) => faults.iter().any(|fault| fault.as_raw() == signal),
        }
    }
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use gpufleet::session::Relay;
    use rustix::process::getpid;

    use super::*;

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    /// A folder with a file in place of the driver library.
    fn folder() -> (SessionFolder, tempfile::NamedTempFile) {
        let library = tempfile::NamedTempFile::new().unwrap();
        (SessionFolder::create(library.path()).unwrap(), library)
    }

    async fn ran(script: &str) -> ProgramEnd {
        let (folder, _library) = folder();
        let (_relay, rejections) = Relay::start(&folder.socket(), Vec::new()).unwrap();
        let mut child = start(&command(&["sh", "-c", script]), &folder).unwrap();
        let mut signals = Signals::listen().unwrap();
        wait(&mut child, &mut signals, rejections, Lines { is_quiet: true }).await.unwrap()
    }

    #[tokio::test]
    async fn a_command_gets_the_environment_of_the_session_and_its_end_is_known() {
        let environment = "test -S $GPUFLEET_SESSION_SOCKET && test -e ${LD_LIBRARY_PATH%%:*}/libcuda.so && test -e $NUMBA_CUDA_DRIVER";
        assert_eq!(ran(environment).await, ProgramEnd::Code(0));
        assert_eq!(ran("exit 7").await, ProgramEnd::Code(7));
        assert_eq!(ran("kill -KILL $$").await, ProgramEnd::Signal(9));
    }

    #[tokio::test]
    async fn a_signal_for_this_process_alone_is_passed_on() {
        let (folder, _library) = folder();
        for signal in [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP] {
            // A shell has its background jobs ignore some of the signals, and programs inherit that.
            // SAFETY: the default action installs no handler.
            unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
            let mut child = start(&command(&["sleep", "60"]), &folder).unwrap();
            let itself = Pid::from_raw(child.id().unwrap() as i32);
            // The terminal has sent these to the command too, or it has sent them itself.
            pass_on(Received { signal: Signal::KILL, sender: Sender::Kernel }, &child);
            pass_on(Received { signal: Signal::KILL, sender: Sender::Process(itself) }, &child);
            pass_on(Received { signal, sender: Sender::Process(Some(getpid())) }, &child);
            assert_eq!(ProgramEnd::of(child.wait().await.unwrap()), ProgramEnd::Signal(signal.as_raw()));
        }
    }

    #[tokio::test]
    async fn a_command_that_has_left_the_terminals_group_gets_its_signals_from_here() {
        let (folder, _library) = folder();
        let mut child = start(&command(&["setsid", "sleep", "60"]), &folder).unwrap();
        let id = Pid::from_raw(child.id().unwrap() as i32);
        while getpgid(id).unwrap() == getpgrp() {
            tokio::task::yield_now().await;
        }
        pass_on(Received { signal: Signal::INT, sender: Sender::Kernel }, &child);
        assert_eq!(ProgramEnd::of(child.wait().await.unwrap()), ProgramEnd::Signal(2));
    }

    #[tokio::test]
    async fn a_command_that_does_not_start_has_the_exit_code_of_shells() {
        let (folder, library) = folder();
        let exit = |words: &[&str]| start(&command(words), &folder).map(drop).unwrap_err().exit;
        assert_eq!(exit(&["gpufleet-no-such-command"]), Exit::CommandNotFound);
        assert_eq!(exit(&[library.path().to_str().unwrap()]), Exit::CommandNotExecutable);
    }

    #[test]
    fn signals_of_a_fault_are_failures_of_the_program_itself() {
        assert!(ProgramEnd::Code(1).is_own_failure() && ProgramEnd::Signal(6).is_own_failure());
        assert!(!ProgramEnd::Code(0).is_own_failure() && !ProgramEnd::Signal(15).is_own_failure());
        assert_eq!(ProgramEnd::Signal(15).to_string(), "was killed by signal 15");
    }
}
