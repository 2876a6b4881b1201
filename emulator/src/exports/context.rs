//! C functions for contexts (`cuCtx*`).

use std::{
    ffi::c_void,
    sync::{PoisonError, atomic::Ordering},
};

use gpufleet_surface::argument::{In, Out};

use super::exports;
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

exports! {
    fn cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) {
        context.fill(|| create(flags, device))
    }

    fn cuCtxCreate_v3(context: Out<Handle>, affinity: In<c_void>, count: i32, flags: u32, device: i32) {
        let _ = affinity;
        if count != 0 {
            return Err(Status::UnsupportedExecAffinity);
        }
        context.fill(|| create(flags, device))
    }

    fn cuCtxCreate_v4(context: Out<Handle>, parameters: In<c_void>, flags: u32, device: i32) {
        if !parameters.is_null() {
            return Err(Status::NotSupported);
        }
        context.fill(|| create(flags, device))
    }

    fn cuCtxDestroy_v2(context: Handle) {
        destroy(&*contexts()?.get(context).map_err(|_| Status::InvalidContext)?)
    }

    fn cuCtxAttach(context: Out<Handle>, flags: u32) {
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        context.fill(|| {
            let context = current::context()?;
            context.attach();
            Ok(context.handle)
        })
    }

    fn cuCtxDetach(context: Handle) {
        let current = current::context()?;
        if current.handle != context {
            return Err(Status::InvalidContext);
        }
        if current.detach() { destroy(&current) } else { Ok(()) }
    }

    fn cuCtxPushCurrent_v2(context: Handle) {
        current::push(context)
    }

    fn cuCtxPopCurrent_v2(context: Out<Handle>) {
        let popped = current::pop()?;
        context.set(popped);
        Ok(())
    }

    fn cuCtxSetCurrent(context: Handle) {
        current::set(context)
    }

    fn cuCtxGetCurrent(context: Out<Handle>) {
        driver()?;
        context.fill(|| Ok(current::handle().unwrap_or(0)))
    }

    fn cuCtxGetDevice(device: Out<i32>) {
        device.fill(|| Ok(current::context()?.device.ordinal))
    }

    fn cuCtxGetApiVersion(context: Handle, version: Out<u32>) {
        contexts()?.get(if context == 0 { current::context()?.handle } else { context })?;
        version.fill(|| Ok(API_VERSION))
    }

    fn cuCtxGetId(context: Handle, id: Out<u64>) {
        let context = contexts()?.get(if context == 0 { current::context()?.handle } else { context })?;
        id.fill(|| Ok(context.handle as u64))
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        flags.fill(|| Ok(current::context()?.flags()))
    }

    fn cuCtxSetFlags(flags: u32) {
        check_flags(flags)?;
        current::context()?.set_flags(flags);
        Ok(())
    }

    fn cuCtxSynchronize() {
        let context = current::context()?;
        capture::forbid_waiting_for_all(&context)?;
        context.synchronize()
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        value.fill(|| {
            let (context, index) = (current::context()?, limit_index(limit)?);
            let limits = context.limits.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(limits[index])
        })
    }

    fn cuCtxSetLimit(limit: u32, value: usize) {
        let (context, index) = (current::context()?, limit_index(limit)?);
        context.limits.lock().unwrap_or_else(PoisonError::into_inner)[index] = value;
        Ok(())
    }

    fn cuCtxGetCacheConfig(config: Out<u32>) {
        config.fill(|| Ok(current::context()?.cache_config.load(Ordering::Relaxed)))
    }

    fn cuCtxSetCacheConfig(config: u32) {
        current::context()?.cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(config: Out<u32>) {
        config.fill(|| current::context().map(|_| FOUR_BYTE_BANKS))
    }

    fn cuCtxSetSharedMemConfig(config: u32) {
        let _ = config;
        current::context().map(drop)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current::context()?;
        least.set(PRIORITIES.0);
        greatest.set(PRIORITIES.1);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        current::context().map(drop)
    }

    fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) {
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

    fn cuCtxDisablePeerAccess(peer: Handle) {
        current::context()?;
        contexts()?.get(peer).map_err(|_| Status::InvalidContext)?;
        Err(Status::PeerAccessNotEnabled)
    }
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
