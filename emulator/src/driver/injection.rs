//! Faults on demand, by the rules of [`faults`](super::faults), where the driver's calls ask for them.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use super::{
    context::Context,
    device::{Device, DeviceFault},
    driver,
    faults::{Injected, Site},
    settings,
    status::{Answer, Status},
};

/// Written to by the call that holds up all others.
static HELD: RwLock<()> = RwLock::new(());
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// A primary context that is asked for: where it is its turn, the device is lost instead or has no room for it.
pub fn open(device: &Device) -> Answer {
    match driver()?.injection.next(device.part.device, Site::Context, None) {
        Some((Injected::Sticky(status), number)) => {
            device.raise(DeviceFault::new(status, report(status, &format!("context {number}"))));
            device.check()
        }
        Some((Injected::OutOfMemory, _)) => Err(Status::OutOfMemory),
        None | Some(_) => Ok(()),
    }
}

/// A call that allocates, copies, loads or asks: fails where it is its turn.
pub fn call(context: &Context, site: Site) -> Answer {
    match driver()?.injection.next(context.device.part.device, site, None) {
        None | Some((Injected::Hang | Injected::Hold, _)) => Ok(()),
        Some((Injected::Wait, _)) => wait(context),
        Some((Injected::OutOfMemory, _)) => Err(Status::OutOfMemory),
        Some((Injected::Refused(status), _)) => Err(status),
        Some((Injected::Sticky(status), number)) => {
            let place = match site {
                Site::Copy => "copy",
                Site::Load => "load",
                Site::Function => "function",
                Site::Info => "info",
                Site::Stream => "stream",
                Site::Allocation | Site::Launch | Site::Context | Site::Wait => "allocation",
            };
            context.device.raise(DeviceFault::new(status, report(status, &format!("{place} {number}"))));
            context.check()
        }
    }
}

/// Waits for the kernels that run, and where it is its turn holds up all other calls meanwhile.
pub fn wait(context: &Context) -> Answer {
    let next = driver()?.injection.next(context.device.part.device, Site::Wait, None);
    if !matches!(next, Some((Injected::Hold, _))) {
        return context.synchronize();
    }
    let held = HELD.write().unwrap_or_else(PoisonError::into_inner);
    IS_HELD.store(true, Ordering::Release);
    let ended = context.synchronize();
    IS_HELD.store(false, Ordering::Release);
    drop(held);
    ended
}

/// They wait for work on the device, and need no lock for that.
const SLEEPERS: [&str; 3] = ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"];

/// Each call of the driver begins with this.
pub fn wait_while_held(name: &str) {
    if IS_HELD.load(Ordering::Acquire) && !SLEEPERS.contains(&name) {
        drop(HELD.read().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A kernel that is about to start: the fault that it ends with, where it is its turn.
pub fn launch(context: &Context, kernel: &str) -> Result<(), DeviceFault> {
    let device = context.device.part.device;
    let next = driver().ok().and_then(|driver| driver.injection.next(device, Site::Launch, Some(kernel)));
    let Some((fault, number)) = next else {
        return Ok(());
    };
    let status = match fault {
        Injected::Sticky(status) => status,
        Injected::OutOfMemory => Status::OutOfMemory,
        Injected::Refused(_) | Injected::Wait | Injected::Hold => return Ok(()),
        Injected::Hang => {
            context.wait_until_cancelled();
            Status::LaunchTimeout
        }
    };
    Err(DeviceFault::new(status, report(status, &format!("launch {number}, of kernel `{kernel}`"))))
}

fn report(status: Status, place: &str) -> String {
    let name = status.name().to_string_lossy();
    format!("{name} at {place}: injected by {}", settings::FAULTS)
}
