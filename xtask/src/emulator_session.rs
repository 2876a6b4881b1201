//! Sessions for programs of `emulator_programs`: each process of a program has a session of its own, in a process of
//! its own, because a fault makes the device of a process unusable.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use anyhow::Context as _;
use gpufleet_remote::greeting::TOKEN_BYTES;
use gpufleet_session::{
    Limits, Native,
    serve::{Ended, serve as serve_session},
};
use tempfile::TempDir;
use tokio::{
    net::UnixListener,
    process::{Child, Command},
    sync::mpsc,
    task::JoinHandle,
};

/// Device memory of a session: all that the device has.
const LIMITS: Limits = Limits { memory: u64::MAX };

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The driver that makes the calls
    #[arg(long)]
    driver: PathBuf,
}

/// Sessions of the programs that connect.
#[derive(Debug)]
pub struct Sessions {
    folder: TempDir,
    listening: JoinHandle<()>,
    /// The processes of the sessions.
    started: mpsc::UnboundedReceiver<Child>,
}

impl Sessions {
    /// Listens for programs, and starts a session for each.
    pub fn start(driver: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("failed to create a folder for the socket")?;
        let listener = UnixListener::bind(socket(&folder)).context("failed to listen for programs")?;
        let (sender, started) = mpsc::unbounded_channel();
        let driver = driver.to_owned();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match start(stream, &driver) {
                    Ok(session) => drop(sender.send(session)),
                    Err(error) => eprintln!("a session did not start: {error:#}"),
                }
            }
        });
        Ok(Self { folder, listening, started })
    }

    /// Returns the command of a program that connects to these sessions.
    pub fn of(&self, mut program: Command) -> Command {
        program.env("GPUFLEET_SESSION_SOCKET", socket(&self.folder));
        program
    }

    /// Returns how often the programs, which have ended, waited for an answer.
    pub async fn waits(mut self) -> anyhow::Result<u64> {
        self.listening.abort();
        let mut waits = 0;
        while let Some(session) = self.started.recv().await {
            let ended = session.wait_with_output().await.context("failed to wait for a session")?;
            let written = String::from_utf8_lossy(&ended.stdout);
            waits += written.trim().parse::<u64>().with_context(|| format!("a session ended with {written:?}"))?;
        }
        Ok(waits)
    }
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("session")
}

/// Starts the process of a session, whose standard input is the connection and whose output is the number of waits.
fn start(stream: tokio::net::UnixStream, driver: &Path) -> anyhow::Result<Child> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("emulator-session").arg("--driver").arg(driver);
    command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().context("failed to start the session's process")
}

/// Serves the program at the other end of standard input.
pub fn serve(options: &Options) -> anyhow::Result<()> {
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let native = Arc::new(Native::load(&options.driver)?);
    let Ended { calls, posts, .. } = serve_session(native, LIMITS, &[0; TOKEN_BYTES], stream)?;
    println!("{}", calls - posts);
    Ok(())
}
