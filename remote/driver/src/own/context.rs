//! Contexts, of which the program keeps a stack for each thread.

use std::{
    collections::HashMap,
    ffi::c_void,
    sync::{Mutex, PoisonError},
};

use gpufleet_remote::{
    kinds::{Context, Device},
    roles::{ContextFlags, Gone},
};
use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
};

use crate::{contexts, rows, session, threads};

/// Result of `cuCtxGetApiVersion` since contexts got their present form.
const API_VERSION: u32 = 3020;

/// How often each context was attached, beside its creation.
static ATTACHED: Mutex<Option<HashMap<u64, u32>>> = Mutex::new(None);

pub(crate) fn cuCtxCreate_v2(context: Out<Context>, flags: ContextFlags, device: Device) -> Answer {
    context.fill(|| {
        let mut made = Context(0);
        // SAFETY: the place lives until the call has ended.
        rows::cuCtxCreate_v2(unsafe { Out::from_pointer(&raw mut made) }, flags, device)?;
        contexts::add(made.0);
        contexts::push(made.0)?;
        Ok(made)
    })
}

pub(crate) fn cuCtxCreate_v3(
    context: Out<Context>,
    affinity: In<c_void>,
    count: i32,
    flags: u32,
    device: Device,
) -> Answer {
    let _ = affinity;
    if count != 0 {
        return Err(Status::UnsupportedExecAffinity);
    }
    cuCtxCreate_v2(context, ContextFlags(flags), device)
}

pub(crate) fn cuCtxCreate_v4(context: Out<Context>, parameters: In<c_void>, flags: u32, device: Device) -> Answer {
    if !parameters.is_null() {
        return Err(Status::NotSupported);
    }
    cuCtxCreate_v2(context, ContextFlags(flags), device)
}

pub(crate) fn cuCtxDestroy_v2(context: Gone<Context>) -> Answer {
    rows::cuCtxDestroy_v2(context)?;
    contexts::remove(context.0.0);
    Ok(())
}

pub(crate) fn cuCtxAttach(context: Out<Context>, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    context.fill(|| {
        let current = contexts::current()?;
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        *attached.get_or_insert_default().entry(current).or_default() += 1;
        Ok(Context(current))
    })
}

pub(crate) fn cuCtxDetach(context: Context) -> Answer {
    if contexts::current()? != context.0 {
        return Err(Status::InvalidContext);
    }
    let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
    match attached.get_or_insert_default().get_mut(&context.0) {
        Some(count) if *count > 0 => {
            *count -= 1;
            Ok(())
        }
        _ => cuCtxDestroy_v2(Gone(context)),
    }
}

pub(crate) fn cuCtxPushCurrent_v2(context: Context) -> Answer {
    contexts::push(context.0)
}

pub(crate) fn cuCtxPopCurrent_v2(context: Out<Context>) -> Answer {
    let popped = contexts::pop()?;
    context.set(Context(popped));
    Ok(())
}

pub(crate) fn cuCtxSetCurrent(context: Context) -> Answer {
    contexts::set(context.0)
}

pub(crate) fn cuCtxGetCurrent(context: Out<Context>) -> Answer {
    context.fill(|| Ok(Context(threads::context().unwrap_or(0))))
}

pub(crate) fn cuCtxGetDevice(device: Out<Device>) -> Answer {
    device.fill(|| {
        contexts::current()?;
        Ok(session::DEVICE)
    })
}

pub(crate) fn cuCtxGetApiVersion(context: Context, version: Out<u32>) -> Answer {
    let context = if context.0 == 0 { contexts::current()? } else { context.0 };
    contexts::check(context).map_err(|_| Status::InvalidHandle)?;
    version.fill(|| Ok(API_VERSION))
}
