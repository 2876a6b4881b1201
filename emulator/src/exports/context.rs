//! C functions for contexts (`cuCtx*`).

use std::{
    ffi::c_void,
    sync::{PoisonError, atomic::Ordering},
};

use gpufleet_surface::argument::{In, Out};

use crate::driver::{
    capture,
    context::contexts,
    context::{Context, LIMITS},
    current, driver,
    handle::Handle,
    primary,
    status::{Answer, Status},
    stream::object::PRIORITIES,
    teardown,
};

/// Result of `cuCtxGetApiVersion` since contexts got their present form.
const API_VERSION: u32 = 3020;
/// `CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE`: shared memory banks have four bytes.
const FOUR_BYTE_BANKS: u32 = 1;
/// `CU_CTX_FLAGS_MASK`, and the part of it that says how threads wait: spinning, yielding or blocked.
const FLAGS: u32 = 0xFF;
const WAITING: u32 = 0b111;
/// Limits of launches from a device, which the emulator lacks.
const DEVICE_RUNTIME_LIMITS: std::ops::RangeInclusive<u32> = 3..=4;

pub(super) fn cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) -> Answer {
    context.fill(|| create(flags, device))
}

pub(super) fn cuCtxCreate_v3(
    context: Out<Handle>,
    affinity: In<c_void>,
    count: i32,
    flags: u32,
    device: i32,
) -> Answer {
    let _ = affinity;
    if count != 0 {
        return Err(Status::UnsupportedExecAffinity);
    }
    context.fill(|| create(flags, device))
}

pub(super) fn cuCtxCreate_v4(context: Out<Handle>, parameters: In<c_void>, flags: u32, device: i32) -> Answer {
    if !parameters.is_null() {
        return Err(Status::NotSupported);
    }
    context.fill(|| create(flags, device))
}

pub(super) fn cuCtxDestroy_v2(context: Handle) -> Answer {
    destroy(&*contexts()?.get(context).map_err(|_| Status::InvalidContext)?)
}

pub(super) fn cuCtxAttach(context: Out<Handle>, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    context.fill(|| {
        let context = current::context()?;
        context.attach();
        Ok(context.handle)
    })
}

pub(super) fn cuCtxDetach(context: Handle) -> Answer {
    let current = current::context()?;
    if current.handle != context {
        return Err(Status::InvalidContext);
    }
    if current.detach() { destroy(&current) } else { Ok(()) }
}

pub(super) fn cuCtxPushCurrent_v2(context: Handle) -> Answer {
    current::push(context)
}

pub(super) fn cuCtxPopCurrent_v2(context: Out<Handle>) -> Answer {
    let popped = current::pop()?;
    context.set(popped);
    Ok(())
}

pub(super) fn cuCtxSetCurrent(context: Handle) -> Answer {
    current::set(context)
}

pub(super) fn cuCtxGetCurrent(context: Out<Handle>) -> Answer {
    driver()?;
    context.fill(|| Ok(current::handle().unwrap_or(0)))
}

pub(super) fn cuCtxGetDevice(device: Out<i32>) -> Answer {
    device.fill(|| Ok(current::context()?.device.ordinal))
}

pub(super) fn cuCtxGetApiVersion(context: Handle, version: Out<u32>) -> Answer {
    contexts()?.get(if context == 0 { current::context()?.handle } else { context })?;
    version.fill(|| Ok(API_VERSION))
}

pub(super) fn cuCtxGetId(context: Handle, id: Out<u64>) -> Answer {
    let context = contexts()?.get(if context == 0 { current::context()?.handle } else { context })?;
    id.fill(|| Ok(context.handle as u64))
}

pub(super) fn cuCtxGetFlags(flags: Out<u32>) -> Answer {
    flags.fill(|| Ok(current::context()?.flags()))
}

pub(super) fn cuCtxSetFlags(flags: u32) -> Answer {
    check_flags(flags)?;
    current::context()?.set_flags(flags);
    Ok(())
}

pub(super) fn cuCtxSynchronize() -> Answer {
    let context = current::context()?;
    capture::forbid_waiting_for_all(&context)?;
    context.synchronize()
}

pub(super) fn cuCtxGetLimit(value: Out<usize>, limit: u32) -> Answer {
    value.fill(|| {
        let (context, index) = (current::context()?, limit_index(limit)?);
        let limits = context.limits.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(limits[index])
    })
}

pub(super) fn cuCtxSetLimit(limit: u32, value: usize) -> Answer {
    let (context, index) = (current::context()?, limit_index(limit)?);
    context.limits.lock().unwrap_or_else(PoisonError::into_inner)[index] = value;
    Ok(())
}

pub(super) fn cuCtxGetCacheConfig(config: Out<u32>) -> Answer {
    config.fill(|| Ok(current::context()?.cache_config.load(Ordering::Relaxed)))
}

pub(super) fn cuCtxSetCacheConfig(config: u32) -> Answer {
    current::context()?.cache_config.store(config, Ordering::Relaxed);
    Ok(())
}

pub(super) fn cuCtxGetSharedMemConfig(config: Out<u32>) -> Answer {
    config.fill(|| current::context().map(|_| FOUR_BYTE_BANKS))
}

pub(super) fn cuCtxSetSharedMemConfig(config: u32) -> Answer {
    let _ = config;
    current::context().map(drop)
}

pub(super) fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Answer {
    current::context()?;
    least.set(PRIORITIES.0);
    greatest.set(PRIORITIES.1);
    Ok(())
}

pub(super) fn cuCtxResetPersistingL2Cache() -> Answer {
    current::context().map(drop)
}

pub(super) fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) -> Answer {
    let context = current::context()?;
    let peer = contexts()?.get(peer).map_err(|_| Status::InvalidContext)?;
    if peer.handle == context.handle {
        return Err(Status::InvalidContext);
    }
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    Err(Status::PeerAccessUnsupported)
}

pub(super) fn cuCtxDisablePeerAccess(peer: Handle) -> Answer {
    current::context()?;
    contexts()?.get(peer).map_err(|_| Status::InvalidContext)?;
    Err(Status::PeerAccessNotEnabled)
}

/// Checks the flags of a context: at most one way to wait, and no unknown flag.
pub(super) fn check_flags(flags: u32) -> Answer {
    if flags & !FLAGS != 0 || (flags & WAITING).count_ones() > 1 { Err(Status::InvalidValue) } else { Ok(()) }
}

fn create(flags: u32, device: i32) -> Answer<Handle> {
    check_flags(flags)?;
    let context = Context::create(driver()?.device(device)?, flags)?;
    current::push(context.handle)?;
    Ok(context.handle)
}

fn destroy(context: &Context) -> Answer {
    if primary::is_primary(context.device, context.handle) {
        return Err(Status::InvalidContext);
    }
    current::forget(context.handle);
    teardown::destroy(context)
}

fn limit_index(limit: u32) -> Answer<usize> {
    match limit {
        limit if DEVICE_RUNTIME_LIMITS.contains(&limit) => Err(Status::UnsupportedLimit),
        limit if (limit as usize) < LIMITS => Ok(limit as usize),
        _ => Err(Status::InvalidValue),
    }
}
