//! Copies the driver calls of the program's processes to the workers, and the answers back.

use std::{fmt, fs, io, path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    holders::{Held, Holders},
    route::{ProgramRoute, WorkerStream},
};

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 256 << 10;
/// The time for the worker to close the connection of a process that has ended.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// The pause after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Listens for the processes of a program. Dropping it closes the socket and all connections.
#[derive(Debug)]
pub struct Relay {
    _listening: JoinSet<()>,
}

/// A process of the program that gets no device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// Other processes hold all leases.
    TooMany { process: Process, sessions: usize },
    /// The worker does not take its connection.
    Unreachable { process: Process, problem: String },
}

/// A process on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// 0 if the process is in another container.
    pub id: i32,
    /// The name of its program, without a path. Empty if it has ended.
    pub name: String,
}

impl Relay {
    /// Listens on a socket, and serves one process for each lease at a time. Processes without a device are reported.
    pub fn start(socket: &Path, leases: Vec<ProgramRoute>) -> io::Result<(Self, mpsc::UnboundedReceiver<Rejected>)> {
        let listener = UnixListener::bind(socket)?;
        let (report, reports) = mpsc::unbounded_channel();
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, Holders::of(leases), report));
        Ok((Self { _listening: listening }, reports))
    }
}

async fn listen(listener: UnixListener, holders: Arc<Holders>, report: mpsc::UnboundedSender<Rejected>) {
    let mut programs = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((program, _)) => {
                    programs.spawn(serve(program, holders.clone(), report.clone()));
                }
                // For example, too many open files. The process still waits.
                Err(_) => sleep(ACCEPT_AGAIN).await,
            },
            Some(_) = programs.join_next() => {}
        }
    }
}

/// Serves one process until it or the session ends.
async fn serve(program: UnixStream, holders: Arc<Holders>, report: mpsc::UnboundedSender<Rejected>) {
    // An error means that the relay is being dropped.
    let reject = |rejected| _ = report.send(rejected);
    let Some(held) = holders.take(&program).await else {
        // Without any session, the end of the session was reported before.
        if holders.has_session() {
            reject(Rejected::TooMany { process: Process::of(&program), sessions: holders.count() });
        }
        return;
    };
    let over = held.route.over.clone();
    match held.route.route.connect_program().await {
        Ok(worker) => _ = over.run_until_cancelled(copy(program, worker, held)).await,
        Err(error) => {
            reject(Rejected::Unreachable { process: Process::of(&program), problem: error.to_string() });
        }
    }
}

/// Copies both ways. The lease is free as soon as the process has ended and its last call is on its way.
async fn copy(program: UnixStream, worker: WorkerStream, held: Held) {
    let (from_program, to_program) = program.into_split();
    let (from_worker, mut to_worker) = tokio::io::split(worker);
    let up = async {
        let end = pump(from_program, &mut to_worker).await;
        drop(held);
        // The worker sees the end of the process, and ends its connection.
        end == End::Source && to_worker.shutdown().await.is_ok()
    };
    let down = async {
        let mut from_worker = from_worker;
        if pump(&mut from_worker, to_program).await == End::Target {
            // The process has ended without reading its answers.
            pump(&mut from_worker, tokio::io::sink()).await;
        }
    };
    tokio::pin!(down);
    tokio::select! {
        // The process sees the end of its connection when both halves are dropped.
        () = &mut down => {}
        is_orderly = up => if is_orderly {
            _ = timeout(CLOSED_WITHIN, down).await;
        },
    }
}

/// The side that has ended a copy.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Source,
    Target,
}

/// Copies until one side ends. Each piece is flushed, because a call may be waited for.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> End {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let bytes = match from.read(&mut piece).await {
            Ok(0) | Err(_) => return End::Source,
            Ok(bytes) => bytes,
        };
        if to.write_all(&piece[..bytes]).await.is_err() || to.flush().await.is_err() {
            return End::Target;
        }
    }
}

impl Process {
    fn of(program: &UnixStream) -> Self {
        let id = program.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or_default();
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        Self { id, name: name.trim_end().to_owned() }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, self.name.as_str()) {
            (0, _) => write!(f, "a process"),
            (id, "") => write!(f, "process {id}"),
            (id, name) => write!(f, "process {id} ({name})"),
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { process, sessions } => {
                let plural = if *sessions == 1 { "" } else { "s" };
                let which = ordinal(*sessions + 1);
                write!(f, "{process} is the {which} that uses the GPU, but this run has {sessions} session{plural}")
            }
            Self::Unreachable { process, problem } => write!(f, "the worker did not accept {process}: {problem}"),
        }
    }
}

fn ordinal(number: usize) -> String {
    const WORDS: [&str; 9] = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];
    match number.checked_sub(1).and_then(|index| WORDS.get(index)) {
        Some(word) => (*word).to_owned(),
        None => format!("{number}th"),
    }
}
