//! The session of this process: where it is, and what it told of its device.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use gpufleet_remote::{
    greeting::{Facts, Welcome},
    kinds::Device,
};
use gpufleet_surface::status::{Answer, Status};

use crate::{link::Link, messages};

/// The variable with the path of the session's socket.
pub(crate) const SOCKET: &str = "GPUFLEET_SESSION_SOCKET";

/// The only device of a session.
pub(crate) const DEVICE: Device = Device(0);

struct Open {
    link: Arc<Link>,
    welcome: Welcome,
}

static OPEN: OnceLock<Open> = OnceLock::new();
/// Set in a child of a process that had a session, because the thread that reads answers does not exist there.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Opens the session, if it is not open.
pub(crate) fn open() -> Answer {
    static OPENING: Mutex<()> = Mutex::new(());
    check_process()?;
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if OPEN.get().is_some() {
        return Ok(());
    }
    let Some(path) = std::env::var_os(SOCKET) else {
        messages::once("no session: start the program with \"gpufleet run --memory SIZE -- COMMAND\"");
        return Err(Status::NoDevice);
    };
    let (link, welcome) = Link::open(path.as_ref()).map_err(|error| {
        messages::once(&format!("the session at {} {error}", path.display()));
        Status::DeviceUnavailable
    })?;
    let _ = OPEN.set(Open { link, welcome });
    // SAFETY: the handler stores to a flag, which is allowed in a child.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    Ok(())
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Release);
}

fn check_process() -> Answer {
    if FORKED.load(Ordering::Acquire) {
        let process = std::process::id();
        messages::once(&format!("process {process} was forked after cuInit; start it with \"spawn\""));
        return Err(Status::NotInitialized);
    }
    Ok(())
}

/// Checks that the session is open.
pub(crate) fn check() -> Answer {
    check_process()?;
    OPEN.get().map(drop).ok_or(Status::NotInitialized)
}

pub(crate) fn link() -> Answer<&'static Link> {
    OPEN.get().map(|open| &*open.link).ok_or(Status::NotInitialized)
}

/// Returns the link, unless there is none in this process.
pub(crate) fn link_if_open() -> Option<&'static Link> {
    OPEN.get().filter(|_| !FORKED.load(Ordering::Acquire)).map(|open| &*open.link)
}

pub(crate) fn facts() -> Answer<&'static Facts> {
    OPEN.get().map(|open| &open.welcome.facts).ok_or(Status::NotInitialized)
}

/// Reports whether the session's driver has a call. Before there is a session, every call may be there.
pub(crate) fn has(call: u16) -> bool {
    OPEN.get().is_none_or(|open| open.welcome.available.get(usize::from(call)) == Some(&true))
}
