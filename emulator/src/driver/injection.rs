//! Fault injection: the driver's calls ask here whether a rule of [`faults`](super::faults) applies to them.

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

/// Locked for writing by the call that holds up all others.
static HELD: RwLock<()> = RwLock::new(());
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Injects faults into a request for a primary context: loss of the device, or lack of memory.
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

/// Injects faults into a call that allocates, copies, loads or queries.
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

/// Waits for running kernels; if a rule says so, holds up all other calls meanwhile.
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

/// Calls that only wait for work on the device, for which a driver needs no lock.
const SLEEPERS: [&str; 3] = ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"];

/// Waits while another call holds up all calls; every driver call begins with this.
pub fn wait_while_held(name: &str) {
    if IS_HELD.load(Ordering::Acquire) && !SLEEPERS.contains(&name) {
        drop(HELD.read().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Injects faults into a kernel that is about to start.
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
