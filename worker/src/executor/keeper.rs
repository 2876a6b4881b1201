//! Keeps watch over one child process from a thread of its own.
//!
//! The thread starts the child, reads what it prints, and waits for its end. It must be one thread from first to last: the kernel sends the
//! death signal when the *thread* that started the child ends, and a runtime's threads come and go.

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

use tokio::{
    net::{UnixStream, unix::OwnedWriteHalf},
    sync::{oneshot, watch},
    time::Instant,
};
use tracing::debug;

use super::link::Incoming;

/// How much of what a child prints is kept for the report of its death.
const TAIL_BYTES_MAX: usize = 16 << 10;
/// A line longer than this is cut where it is logged; a failed `assert` may say anything.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// A killed process is gone as soon as the kernel has taken back its memory, and what it had of a large GPU takes a while. One that hangs
/// in a call of a sick GPU's driver may never be.
const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// A child process. Dropping it leaves the child alone; [`Keeper::kill`] does not.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    pid: u32,
    /// True until the child has been reaped: then its id may name another process.
    alive: Arc<Mutex<bool>>,
    exit: watch::Receiver<Option<Exit>>,
    /// When it was first killed.
    killed: watch::Sender<Option<Instant>>,
    kill_deadline: Duration,
}

/// A child that is killed when whoever started it gives it up or is cancelled.
#[derive(Debug)]
pub(crate) struct Ward(Option<Keeper>);

/// How a child ended.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    /// `None` where it was killed and did not end.
    pub status: Option<ExitStatus>,
    /// The end of what it printed.
    pub tail: String,
}

impl Keeper {
    fn new(pid: u32, alive: Arc<Mutex<bool>>, exit: watch::Receiver<Option<Exit>>) -> Self {
        Self { pid, alive, exit, killed: watch::Sender::new(None), kill_deadline: KILL_DEADLINE }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the child at once, if it is still there.
    pub(crate) fn kill(&self) {
        self.killed.send_if_modified(|killed| killed.replace(killed.unwrap_or_else(Instant::now)).is_none());
        let alive = self.alive.lock().expect("no thread panics while holding it");
        if *alive {
            // SAFETY: kill has no memory effects, and the child is not yet reaped, so the id is still its own.
            unsafe { libc::kill(self.pid as libc::pid_t, libc::SIGKILL) };
        }
    }

    /// Waits for the child's end; once it was killed, not for ever. Cancelling changes nothing.
    pub(crate) async fn exit(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = tokio::select! {
            biased;
            ended = exit.wait_for(Option::is_some) => ended,
            () = self.overdue() => return Exit { status: None, tail: String::new() },
        };
        match ended {
            Ok(exit) => exit.clone().expect("that is what was waited for"),
            // The keeper thread ends only after it has sent.
            Err(_) => unreachable!("the keeper thread sends the exit before it ends"),
        }
    }

    /// Resolves when a kill has had the time that it may take. Without a kill it never does.
    pub(crate) async fn overdue(&self) {
        let mut killed = self.killed.subscribe();
        let at = *killed.wait_for(Option::is_some).await.expect("the sender is here");
        tokio::time::sleep_until(at.expect("that is what was waited for") + self.kill_deadline).await;
    }
}

impl Ward {
    /// Starts a child with a socket to it as its standard input. Its standard error goes to the log, and so does its standard output unless
    /// that has a reader of its own. The kernel kills it when this process ends. Cancelling kills it.
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
        thread::Builder::new().name("executor-keeper".into()).spawn(move || keep(command, reader, started))?;
        let ward = starting.await.map_err(|_| io::Error::other("the keeper thread died"))??;
        ours.set_nonblocking(true)?;
        let (incoming, outgoing) = UnixStream::from_std(ours)?.into_split();
        Ok((ward, Incoming::new(incoming), outgoing))
    }

    /// From now on it lives until its keeper is told to kill it.
    pub(crate) fn release(mut self) -> Keeper {
        self.0.take().expect("only a release takes it")
    }

    /// Ends the child, and waits for that. Cancelled, the child ends all the same.
    pub(crate) async fn end(self) -> Exit {
        let keeper = self.release();
        keeper.kill();
        keeper.exit().await
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        self.0.iter().for_each(Keeper::kill);
    }
}

impl Exit {
    /// It was killed and is still there: no signal reaches it in the driver.
    pub(crate) fn is_stuck(&self) -> bool {
        self.status.is_none()
    }

    /// One line for a person.
    pub(crate) fn describe(&self) -> String {
        let status = self.how();
        match self.tail.lines().rev().find(|line| !line.trim().is_empty()) {
            // A kernel's `assert` is heard here too, and a log or a terminal that shows this must not obey it.
            Some(line) => {
                format!("{status}; last line on stderr: {}", line.trim().replace(char::is_control, "\u{fffd}"))
            }
            None => status,
        }
    }

    /// The same without its last words.
    pub(crate) fn how(&self) -> String {
        match &self.status {
            Some(status) => status.to_string(),
            None => format!("it did not end within {} s after a kill", KILL_DEADLINE.as_secs()),
        }
    }
}

/// Asks the kernel to kill the child when the thread that starts it ends, which is no sooner than this process.
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: prctl and getppid are async-signal-safe and touch no memory.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // A parent that died before the call above sends no signal.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// The life of a keeper's thread. The ward that nobody takes any more is dropped on its way, and with that its child is killed.
fn keep(mut command: Command, output: io::PipeReader, started: oneshot::Sender<io::Result<Ward>>) {
    let child = command.spawn();
    // The command holds copies of the child's ends, which would keep the pipe and the socket open.
    drop(command);
    let child = match child {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(error))),
    };
    let (exit, exited) = watch::channel(None);
    let alive = Arc::new(Mutex::new(true));
    let keeper = Keeper::new(child.id(), Arc::clone(&alive), exited);
    drop(started.send(Ok(Ward(Some(keeper)))));
    exit.send_replace(Some(watch_over(child, output, &alive)));
}

fn watch_over(mut child: Child, output: io::PipeReader, alive: &Mutex<bool>) -> Exit {
    let pid = child.id();
    let tail = read_output(output, pid);
    wait_without_reaping(pid);
    let mut alive = alive.lock().expect("no thread panics while holding it");
    let status = child.wait().expect("the child is ours and not yet reaped");
    *alive = false;
    Exit { status: Some(status), tail }
}

/// Reads to the end of the output, which is the end of the child, and keeps the last of it.
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
        // In quotes and escaped: a kernel's `assert` says what it likes, and must not write to a terminal or forge a line of the log.
        debug!(pid, line = ?String::from_utf8_lossy(&line).trim_end(), "executor printed");
        tail.extend(&line);
        let surplus = tail.len().saturating_sub(TAIL_BYTES_MAX);
        tail.drain(..surplus);
    }
    String::from_utf8_lossy(tail.make_contiguous()).into_owned()
}

fn wait_without_reaping(pid: u32) {
    loop {
        // SAFETY: the siginfo is ours to fill, and all-zero is a valid one.
        let waited = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if waited == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

#[cfg(test)]
impl Keeper {
    /// Of a child on which a kill has no effect, until the sender says that it ended.
    pub(crate) fn of_a_stuck_child() -> (Self, watch::Sender<Option<Exit>>) {
        let (end, exit) = watch::channel(None);
        (Self { kill_deadline: Duration::ZERO, ..Self::new(0, Arc::default(), exit) }, end)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, time::Duration};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_child_whose_start_is_cancelled_is_killed() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sleep");
        command.arg("20");
        let keep_open = move || {
            // SAFETY: fcntl is async-signal-safe and touches no memory.
            match unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFD, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec the closure makes one system call.
        unsafe { command.pre_exec(keep_open) };
        drop(futures::poll!(Box::pin(Ward::spawn(command, None))));
        // The pipe ends with the child.
        let ended = tokio::task::spawn_blocking(move || io::copy(&mut reader, &mut io::sink()));
        assert_eq!(tokio::time::timeout(DEADLINE, ended).await.expect("it was killed").unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn a_child_that_outlives_a_kill_is_not_waited_for() {
        let (keeper, end) = Keeper::of_a_stuck_child();
        assert!(futures::poll!(Box::pin(keeper.exit())).is_pending());
        let exit = Ward(Some(keeper.clone())).end().await;
        assert!(exit.is_stuck() && exit.describe().contains("did not end"), "{exit:?}");
        // Should it end after all, that is what is said of it.
        end.send_replace(Some(Exit { status: Some(ExitStatus::default()), tail: String::new() }));
        assert!(!keeper.exit().await.is_stuck());
    }

    #[test]
    fn last_words_give_no_orders_to_a_terminal() {
        let exit = Exit { status: Some(ExitStatus::default()), tail: "first\n\x1b[2J gone\n\n".to_owned() };
        assert!(exit.describe().ends_with("last line on stderr: \u{fffd}[2J gone"), "{}", exit.describe());
    }
}
