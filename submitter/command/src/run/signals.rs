//! Signals while a command runs, with their senders.
//!
//! A terminal sends Ctrl-C to its whole foreground process group, and so to the command. A signal of another process, such as `kill` or a CI
//! runner, may come to this process alone. Only the kernel's record of a signal tells them apart, so a handler of its own writes that to a
//! socket.

use std::{fs, io, os::unix::net};

use rustix::process::{Pid, Signal};
use signal_hook_registry::{SigId, register_sigaction, unregister};
use tokio::net::UnixDatagram;

/// The signals that end a command, unless this process was started with them ignored, as `nohup` does. The command inherits that.
#[derive(Debug)]
pub struct Signals {
    socket: UnixDatagram,
    registered: Vec<SigId>,
    last: Signal,
}

/// A signal that this process got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub signal: Signal,
    pub sender: Sender,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// For example for Ctrl-C.
    Kernel,
    /// The id is unknown if the process is outside of a container.
    Process(Option<Pid>),
}

const ALL: [Signal; 4] = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP];

/// A signal on its way from the handler: its number and its sender.
type Record = [u8; 8];
/// The kernel as a sender in a record. The sender is 0 if its id is unknown.
const KERNEL: i32 = -1;

impl Signals {
    /// From now on these signals do not end this process. In the command they have their usual effect.
    pub fn listen() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let (reader, writer) = net::UnixDatagram::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let mut signals = Self { socket: UnixDatagram::from_std(reader)?, registered: Vec::new(), last: Signal::INT };
        for signal in ALL.into_iter().filter(|signal| !is_ignored(&status, signal.as_raw())) {
            signals.registered.push(register(signal, writer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Waits for the next signal. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Received {
        let mut record = Record::default();
        loop {
            match self.socket.recv(&mut record).await {
                Ok(_) => {
                    let received = Received::parse(record);
                    self.last = received.signal;
                    return received;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The handlers keep the other end open.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// The exit code after the last signal, as shells have it.
    pub fn exit_code(&self) -> u8 {
        (128 + self.last.as_raw()) as u8
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
    }
}

impl Received {
    fn parse(record: Record) -> Self {
        let [number, sender] = [0, 4].map(|at| i32::from_ne_bytes([0, 1, 2, 3].map(|byte| record[at + byte])));
        let signal = ALL.into_iter().find(|signal| signal.as_raw() == number).expect("only these have a handler");
        let sender = if sender == KERNEL { Sender::Kernel } else { Sender::Process(Pid::from_raw(sender)) };
        Self { signal, sender }
    }
}

fn register(signal: Signal, socket: net::UnixDatagram) -> io::Result<SigId> {
    let number = signal.as_raw();
    let handler = move |info: &_| {
        // If the socket is full, hundreds of signals wait.
        drop(socket.send(&record(number, sender(info))));
    };
    // SAFETY: the handler makes one system call, which is safe in a handler. It does not allocate, lock or panic.
    unsafe { register_sigaction(number, handler) }
}

fn record(number: i32, sender: i32) -> Record {
    let mut record = Record::default();
    record[..4].copy_from_slice(&number.to_ne_bytes());
    record[4..].copy_from_slice(&sender.to_ne_bytes());
    record
}

/// Returns the sender of a signal as a record has it.
fn sender(info: &libc::siginfo_t) -> i32 {
    if info.si_code > 0 {
        return KERNEL;
    }
    // SAFETY: the kernel fills in the sender of a signal that it did not send itself.
    unsafe { info.si_pid() }
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    ignored >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_counts_from_one() {
        let status = "Name:\tgpufleet\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored("", 1));
    }

    #[test]
    fn a_record_has_the_signal_and_its_sender() {
        let process = getpid();
        for (sender, number) in [
            (Sender::Kernel, KERNEL),
            (Sender::Process(None), 0),
            (Sender::Process(Some(process)), process.as_raw_nonzero().get()),
        ] {
            for signal in ALL {
                assert_eq!(Received::parse(record(signal.as_raw(), number)), Received { signal, sender });
            }
        }
    }
}
