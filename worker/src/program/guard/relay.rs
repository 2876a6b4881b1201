//! Passes on the supervisor's messages to the init, and the program's output to the supervisor.
//!
//! The relay reads output only when the supervisor has taken the output before it. Until then the pipe fills, and the program waits. The
//! relay listens to the supervisor all the time, so that a program that waits can be stopped.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    process::Child,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    sync::mpsc,
};

use super::{folder::WorkFolder, log::Log, start::Init};
use crate::{
    executor::{Incoming, receive},
    ipc::frame::{Frame, FrameError},
    program::{
        message::{FromGuard, FromInit, HostEvent, Place, ProgramSpec, ToGuard, ToInit},
        podman,
    },
};

/// Maximum size of a piece of output, in bytes: what a pipe holds.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Maximum messages of the init that wait. It sends three.
const MESSAGES_MAX: usize = 4;

/// The container of a program, for sentences about it.
#[derive(Debug)]
pub(super) struct Container {
    program: String,
    image: String,
}

impl Container {
    pub(super) fn of(spec: &ProgramSpec) -> Option<Self> {
        let Place::Container(container) = &spec.place else { return None };
        let program = spec.command.first().cloned().unwrap_or_default();
        Some(Self { program, image: container.image.clone() })
    }

    /// Returns why it did not start: because of the command, or because of podman.
    fn problem(&self, said: &str) -> HostEvent {
        match podman::refusal(&self.program, &self.image, said) {
            Some(reason) => HostEvent::Refused(reason),
            None => HostEvent::Died(format!(
                "podman could not start a container of the image {}: {}",
                self.image,
                podman::message(said)
            )),
        }
    }
}

/// Runs the program until nothing of it is left, or the supervisor has ended.
pub(super) async fn run(
    supervisor: StdUnixStream,
    init: Init,
    folder: WorkFolder,
    container: Option<Container>,
) -> io::Result<()> {
    let (orders, supervisor) = split(supervisor)?;
    let (from_init, to_init) = split(init.socket)?;
    let (sender, messages) = mpsc::channel(MESSAGES_MAX);
    tokio::spawn(listen(from_init, sender));
    let output = pipe::Receiver::from_owned_fd(OwnedFd::from(folder.output))?;
    let (log, is_of_podman) = (folder.log, container.is_some());
    let mut relay = Relay { supervisor, child: init.child, messages, output, log, container, is_of_podman };
    tokio::select! {
        passed = relay.pass_on() => passed,
        // The end of this process kills the init.
        () = obey(orders, to_init) => Ok(()),
    }
}

fn split(socket: StdUnixStream) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
    socket.set_nonblocking(true)?;
    Ok(UnixStream::from_std(socket)?.into_split())
}

/// Passes on the supervisor's messages until it has ended.
async fn obey(orders: OwnedReadHalf, mut init: OwnedWriteHalf) {
    let mut orders = Incoming::new(orders);
    while let Ok(Some(order)) = receive(&mut orders).await {
        let order = match order {
            ToGuard::Go => ToInit::Go,
            ToGuard::Stop { grace_ms } => ToInit::Stop { grace_ms },
        };
        let Frame { bytes, .. } = Frame::encode(&order, None).expect("the message is small");
        // An init that has ended needs no orders.
        drop(init.write_all(&bytes).await);
    }
}

/// Takes the init's messages until its end.
async fn listen(init: OwnedReadHalf, messages: mpsc::Sender<FromInit>) {
    let mut init = Incoming::new(init);
    while let Ok(Some(message)) = receive(&mut init).await {
        if messages.send(message).await.is_err() {
            return;
        }
    }
}

struct Relay {
    supervisor: OwnedWriteHalf,
    child: Child,
    messages: mpsc::Receiver<FromInit>,
    output: pipe::Receiver,
    log: Log,
    container: Option<Container>,
    /// Whether what comes next in the output is podman's, not the program's.
    is_of_podman: bool,
}

impl Relay {
    /// Passes on the output and the init's messages. The last event comes when the init has exited: then the kernel has killed everything
    /// else in its namespace.
    async fn pass_on(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        let (mut is_running, mut last) = (false, None);
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => match message {
                    Some(FromInit::Started) => {
                        is_running = true;
                        self.tell(HostEvent::Started).await?;
                    }
                    Some(FromInit::Prepared | FromInit::Unpacked) => {}
                    Some(message) => last = Some(message),
                    None => break,
                },
                read = self.output.read(&mut buffer), if is_running => match read? {
                    0 => is_running = false,
                    length => self.pass_on_output(&buffer[..length]).await?,
                },
            }
        }
        let exit = self.child.wait()?;
        if let (Some(FromInit::NotStarted), Some(container)) = (&last, &self.container) {
            let said = self.output.try_read(&mut buffer).map_or(0, |length| length);
            let problem = container.problem(&String::from_utf8_lossy(&buffer[..said]));
            return self.tell(problem).await;
        }
        // A process elsewhere may hold the pipe, so its end is not waited for.
        while let Ok(length @ 1..) = self.output.try_read(&mut buffer) {
            self.pass_on_output(&buffer[..length]).await?;
        }
        let event = match last {
            Some(FromInit::Refused(reason)) => HostEvent::Refused(reason),
            Some(FromInit::Failed(reason)) => HostEvent::Died(reason),
            Some(FromInit::Ended { exit_code, signal, packed }) => HostEvent::Ended {
                exit_code,
                signal,
                packed,
                log_bytes: self.log.bytes(),
                log_dropped_bytes: self.log.dropped_bytes(),
            },
            _ => HostEvent::Died(format!("the first process of the program's namespace ended: {exit}")),
        };
        self.tell(event).await
    }

    async fn pass_on_output(&mut self, mut output: &[u8]) -> io::Result<()> {
        if self.is_of_podman {
            let Some(end) = output.iter().position(|byte| *byte == podman::OUTPUT_END) else { return Ok(()) };
            (self.is_of_podman, output) = (false, &output[end + 1..]);
            if output.is_empty() {
                return Ok(());
            }
        }
        self.log.append(output);
        self.tell(HostEvent::Output(output.to_vec())).await
    }

    async fn tell(&mut self, event: HostEvent) -> io::Result<()> {
        let Frame { bytes, .. } = Frame::encode(&FromGuard::Event(event), None).map_err(|error| match error {
            FrameError::Io(error) => error,
            other => io::Error::other(other),
        })?;
        self.supervisor.write_all(&bytes).await
    }
}
