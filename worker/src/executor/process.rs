//! A child process and the reaper thread that watches it.
//!
//! The reaper starts the child, reads its output and waits for its exit. All of this must happen on one thread: the kernel sends the
//! parent-death signal when the *thread* that started the child ends, and a runtime's threads come and go.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream as StdUnixStream, process::CommandExt},
    },
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, set_parent_process_death_signal, waitid,
    },
};
use tokio::{
    net::{UnixStream, unix::OwnedWriteHalf},
    sync::{oneshot, watch},
    time::Instant,
};
use tracing::debug;

use super::link::Incoming;

/// Maximum size of the end of a child's output that is kept to describe its death, in bytes.
const TAIL_BYTES_MAX: usize = 16 << 10;
/// Maximum length of an output line in the log, in bytes; longer lines are cut, because a failed `assert` may print text of any length.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// Time to wait for the exit of a killed process. It exits once the kernel has freed its memory, which takes a while for a large GPU. A
/// process that hangs in the driver of a failed GPU may never exit.
const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// A child process. Dropping this handle does not end the child; [`ChildProcess::kill`] does.
#[derive(Debug, Clone)]
pub(crate) struct ChildProcess {
    pid: u32,
    /// False once the child has been reaped: its id may then name another process.
    alive: Arc<Mutex<bool>>,
    exit: watch::Receiver<Option<Exit>>,
    /// The time of the first kill.
    killed: watch::Sender<Option<Instant>>,
    kill_deadline: Duration,
}

/// Kills the child when dropped, so that a cancelled start leaves no process behind.
#[derive(Debug)]
pub(crate) struct KillOnDrop(Option<ChildProcess>);

/// How a child ended.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    /// The exit status; `None` if the child was killed and did not exit.
    pub status: Option<ExitStatus>,
    /// The end of its output.
    pub tail: String,
}

impl ChildProcess {
    fn new(pid: u32, alive: Arc<Mutex<bool>>, exit: watch::Receiver<Option<Exit>>) -> Self {
        Self { pid, alive, exit, killed: watch::Sender::new(None), kill_deadline: KILL_DEADLINE }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL to the child unless it has been reaped.
    pub(crate) fn kill(&self) {
        self.killed.send_if_modified(|killed| killed.replace(killed.unwrap_or_else(Instant::now)).is_none());
        let alive = self.alive.lock().expect("no thread panics while holding it");
        if *alive {
            let pid = Pid::from_raw(self.pid.cast_signed()).expect("a child's id is positive");
            // The id still belongs to the child, because it is not reaped yet.
            kill_process(pid, Signal::KILL).ok();
        }
    }

    /// Waits for the child's exit; after a kill, only until the kill deadline. Cancelling is harmless.
    pub(crate) async fn exit(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = tokio::select! {
            biased;
            ended = exit.wait_for(Option::is_some) => ended,
            () = self.overdue() => return Exit { status: None, tail: String::new() },
        };
        match ended {
            Ok(exit) => exit.clone().expect("that is what was waited for"),
            // The reaper ends only after it has sent the exit.
            Err(_) => unreachable!("the reaper sends the exit before it ends"),
        }
    }

    /// Returns when the deadline after a kill has passed. Without a kill it never returns.
    pub(crate) async fn overdue(&self) {
        let mut killed = self.killed.subscribe();
        let at = *killed.wait_for(Option::is_some).await.expect("the sender is here");
        tokio::time::sleep_until(at.expect("that is what was waited for") + self.kill_deadline).await;
    }
}

impl KillOnDrop {
    /// Starts a child whose standard input is a socket to this process. Its standard error goes to the log, and so does its standard output
    /// unless `stdout` is given. The kernel kills the child when this process ends. Cancelling kills it too.
    pub(crate) async fn spawn(
        mut command: Command,
        stdout: Option<io::PipeWriter>,
    ) -> io::Result<(Self, Incoming, OwnedWriteHalf)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let (reader, writer) = io::pipe()?;
        let stdout = stdout.map_or_else(|| writer.try_clone(), Ok)?;
        command.stdin(OwnedFd::from(theirs)).stdout(stdout).stderr(writer).process_group(0);
        die_with_parent(&mut command);
        let (started, starting) = oneshot::channel();
        thread::Builder::new().name("executor-reaper".into()).spawn(move || keep(command, reader, started))?;
        let child = starting.await.map_err(|_| io::Error::other("the reaper thread died"))??;
        ours.set_nonblocking(true)?;
        let (incoming, outgoing) = UnixStream::from_std(ours)?.into_split();
        Ok((child, Incoming::new(incoming), outgoing))
    }

    /// Ends the guard but keeps the child running; from now on only [`ChildProcess::kill`] ends it.
    pub(crate) fn release(mut self) -> ChildProcess {
        self.0.take().expect("only a release takes it")
    }

    /// Kills the child and waits for its exit. Cancelling does not prevent the kill.
    pub(crate) async fn end(self) -> Exit {
        let process = self.release();
        process.kill();
        process.exit().await
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.iter().for_each(ChildProcess::kill);
    }
}

impl Exit {
    /// Returns whether the child survived a kill: a process that hangs in the driver receives no signal.
    pub(crate) fn is_stuck(&self) -> bool {
        self.status.is_none()
    }

    /// Describes the exit in one line for a person, with the last line of the output.
    pub(crate) fn describe(&self) -> String {
        let status = self.how();
        match self.tail.lines().rev().find(|line| !line.trim().is_empty()) {
            // The text may come from a kernel's `assert`, so control characters must not reach a log or a terminal.
            Some(line) => {
                format!("{status}; last line on stderr: {}", line.trim().replace(char::is_control, "\u{fffd}"))
            }
            None => status,
        }
    }

    /// Describes the exit without the last line of the output.
    pub(crate) fn how(&self) -> String {
        match &self.status {
            Some(status) => status.to_string(),
            None => format!("it did not end within {} s after a kill", KILL_DEADLINE.as_secs()),
        }
    }
}

/// Makes the kernel kill the child when the reaper thread ends, which is not before the end of this process.
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent died before the call above, it sends no signal.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Runs the reaper thread. If the caller was cancelled, the guard can't be sent and is dropped, which kills the child.
fn keep(mut command: Command, output: io::PipeReader, started: oneshot::Sender<io::Result<KillOnDrop>>) {
    let child = command.spawn();
    // The command holds copies of the child's ends of pipe and socket, which would keep them open.
    drop(command);
    let child = match child {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(error))),
    };
    let (exit, exited) = watch::channel(None);
    let alive = Arc::new(Mutex::new(true));
    let process = ChildProcess::new(child.id(), Arc::clone(&alive), exited);
    drop(started.send(Ok(KillOnDrop(Some(process)))));
    exit.send_replace(Some(watch_over(child, output, &alive)));
}

fn watch_over(mut child: Child, output: io::PipeReader, alive: &Mutex<bool>) -> Exit {
    let pid = child.id();
    let tail = read_output(output, pid);
    wait_without_reaping(&child);
    let mut alive = alive.lock().expect("no thread panics while holding it");
    let status = child.wait().expect("the child is ours and not yet reaped");
    *alive = false;
    Exit { status: Some(status), tail }
}

/// Reads the output until the child closes it by exiting. Returns its end.
fn read_output(output: io::PipeReader, pid: u32) -> String {
    let mut output = BufReader::new(output);
    let mut tail: VecDeque<u8> = VecDeque::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut output).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        // Quoted and escaped, because a kernel's `assert` must not control a terminal or forge a log line.
        debug!(pid, line = ?String::from_utf8_lossy(&line).trim_end(), "executor printed");
        tail.extend(&line);
        let surplus = tail.len().saturating_sub(TAIL_BYTES_MAX);
        tail.drain(..surplus);
    }
    String::from_utf8_lossy(tail.make_contiguous()).into_owned()
}

fn wait_without_reaping(child: &Child) {
    let child = WaitId::Pid(Pid::from_child(child));
    // If this wait fails, the one that reaps the child repeats it.
    retry_on_intr(|| waitid(child.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)).ok();
}

#[cfg(test)]
impl ChildProcess {
    /// Creates a child that a kill does not affect, until the sender reports its exit.
    pub(crate) fn of_a_stuck_child() -> (Self, watch::Sender<Option<Exit>>) {
        let (end, exit) = watch::channel(None);
        (Self { kill_deadline: Duration::ZERO, ..Self::new(0, Arc::default(), exit) }, end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_child_whose_start_is_cancelled_is_killed() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sleep");
        command.arg("20");
        let keep_open = move || {
            fcntl_setfd(&writer, FdFlags::empty())?;
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes one system call.
        unsafe { command.pre_exec(keep_open) };
        drop(futures::poll!(Box::pin(KillOnDrop::spawn(command, None))));
        // The pipe ends with the child.
        let ended = tokio::task::spawn_blocking(move || io::copy(&mut reader, &mut io::sink()));
        assert_eq!(tokio::time::timeout(DEADLINE, ended).await.expect("it was killed").unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn a_child_that_outlives_a_kill_is_not_waited_for() {
        let (process, end) = ChildProcess::of_a_stuck_child();
        assert!(futures::poll!(Box::pin(process.exit())).is_pending());
        let exit = KillOnDrop(Some(process.clone())).end().await;
        assert!(exit.is_stuck() && exit.describe().contains("did not end"), "{exit:?}");
        // If the child exits after all, that exit is reported.
        end.send_replace(Some(Exit { status: Some(ExitStatus::default()), tail: String::new() }));
        assert!(!process.exit().await.is_stuck());
    }

    #[test]
    fn last_words_give_no_orders_to_a_terminal() {
        let exit = Exit { status: Some(ExitStatus::default()), tail: "first\n\x1b[2J gone\n\n".to_owned() };
        assert!(exit.describe().ends_with("last line on stderr: \u{fffd}[2J gone"), "{}", exit.describe());
    }
}
