//! Primary contexts: one per device, created at the first request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    context::Context,
    device::Device,
    handle::Handle,
    injection,
    status::{Answer, Status},
    teardown,
};

/// Primary contexts by device number. A device without an entry was never asked for its primary context.
static PRIMARIES: Mutex<Option<HashMap<i32, Primary>>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Primary {
    context: Option<Arc<Context>>,
    retained: u32,
    flags: u32,
}

/// The result of `cuDevicePrimaryCtxGetState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrimaryState {
    pub flags: u32,
    pub active: bool,
}

/// Retains the primary context; the first call creates it.
pub fn retain(device: &'static Device) -> Answer<Arc<Context>> {
    device.check()?;
    injection::open(device)?;
    let mut primaries = primaries();
    let primary = primaries.of(device);
    let context = match &primary.context {
        Some(context) => Arc::clone(context),
        None => {
            let context = Context::create(device, primary.flags)?;
            primary.context = Some(Arc::clone(&context));
            context
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// Releases one [`retain`]; the last release ends the context.
pub fn release(device: &Device) -> Answer {
    let mut primaries = primaries();
    let primary = primaries.of(device);
    primary.retained = primary.retained.checked_sub(1).ok_or(Status::InvalidContext)?;
    if primary.retained > 0 {
        return Ok(());
    }
    let ended = primary.context.take();
    drop(primaries);
    ended.map_or(Ok(()), |context| teardown::destroy(&context))
}

/// Ends the primary context, regardless of how often it was retained.
pub fn reset(device: &Device) -> Answer {
    let mut primaries = primaries();
    let primary = primaries.of(device);
    primary.retained = 0;
    let ended = primary.context.take();
    drop(primaries);
    ended.map_or(Ok(()), |context| teardown::destroy(&context))
}

pub fn state(device: &Device) -> PrimaryState {
    let mut primaries = primaries();
    let primary = primaries.of(device);
    let flags = primary.context.as_ref().map_or(primary.flags, |context| context.flags());
    PrimaryState { flags, active: primary.context.is_some() }
}

pub fn set_flags(device: &Device, flags: u32) {
    let mut primaries = primaries();
    let primary = primaries.of(device);
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.set_flags(flags);
    }
}

/// Reports whether this is the context that [`retain`] returns.
pub fn is_primary(device: &Device, context: Handle) -> bool {
    primaries().of(device).context.as_ref().is_some_and(|primary| primary.handle == context)
}

struct Primaries(MutexGuard<'static, Option<HashMap<i32, Primary>>>);

impl Primaries {
    fn of(&mut self, device: &Device) -> &mut Primary {
        self.0.get_or_insert_default().entry(device.ordinal).or_default()
    }
}

fn primaries() -> Primaries {
    Primaries(PRIMARIES.lock().unwrap_or_else(PoisonError::into_inner))
}
