//! C functions for streams (`cuStream*`) and for host functions in them.

use std::ffi::c_void;

use gpufleet_surface::{
    argument::{In, Out},
    callback::{Callback, HostFunction},
    structs::stream::WordOperation,
};

use crate::driver::{
    event,
    handle::Handle,
    host_call::HostCall,
    operation::Operation,
    status::{Answer, Status},
    stream, submission,
    value::{self, Word},
};

/// `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`, and attributes that are hints without effect here: access policy, synchronization
/// policy, domains of memory fences.
const PRIORITY: u32 = 8;
const HINTS: [u32; 4] = [1, 3, 9, 10];

/// The argument of a caller's function, which runs on another thread.
#[derive(Clone, Copy)]
struct CallerData(*mut c_void);

// SAFETY: the headers say that host functions run on another thread, so the caller that passes the pointer has to allow
// for it.
unsafe impl Send for CallerData {}

pub(super) fn cuStreamGetGreenCtx(stream: Handle, part: Out<Handle>) -> Answer {
    part.fill(|| stream::find(stream).map(|_| 0))
}

pub(super) fn cuStreamCreate(stream: Out<Handle>, flags: u32) -> Answer {
    stream.fill(|| stream::create(flags, 0))
}

pub(super) fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, priority: i32) -> Answer {
    stream.fill(|| stream::create(flags, priority))
}

pub(super) fn cuStreamDestroy_v2(stream: Handle) -> Answer {
    stream::destroy(stream)
}

pub(super) fn cuStreamGetAttribute(stream: Handle, attribute: u32, value: Out<[u64; 8]>) -> Answer {
    let (_, stream) = stream::find(stream)?;
    value.fill(|| match attribute {
        PRIORITY => Ok([u64::from(stream.priority().cast_unsigned()), 0, 0, 0, 0, 0, 0, 0]),
        attribute if HINTS.contains(&attribute) => Ok([0; 8]),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuStreamSetAttribute(stream: Handle, attribute: u32, value: In<[u64; 8]>) -> Answer {
    let (_, stream) = stream::find(stream)?;
    match attribute {
        PRIORITY => stream.set_priority((value.get()?[0] as u32).cast_signed()),
        attribute if HINTS.contains(&attribute) => {}
        _ => return Err(Status::InvalidValue),
    }
    Ok(())
}

pub(super) fn cuStreamCopyAttributes(target: Handle, source: Handle) -> Answer {
    let (_, source) = stream::find(source)?;
    stream::find(target)?.1.set_priority(source.priority());
    Ok(())
}

pub(super) fn cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) -> Answer {
    value::write(stream, Word::Narrow(address), value.into(), flags)
}

pub(super) fn cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) -> Answer {
    value::write(stream, Word::Wide(address), value, flags)
}

pub(super) fn cuStreamWaitValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) -> Answer {
    value::wait(stream, Word::Narrow(address), value.into(), flags)
}

pub(super) fn cuStreamWaitValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) -> Answer {
    value::wait(stream, Word::Wide(address), value, flags)
}

pub(super) fn cuStreamBatchMemOp_v2(stream: Handle, count: u32, operations: In<WordOperation>, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    let all = (0..count as usize).map(|index| operations.at(index)).collect::<Answer<Vec<_>>>()?;
    all.iter().try_for_each(|operation| submit(operation, stream))
}

pub(super) fn cuStreamSynchronize(stream: Handle) -> Answer {
    stream::synchronize(stream)
}

pub(super) fn cuStreamQuery(stream: Handle) -> Answer {
    stream::query(stream)
}

pub(super) fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> Answer {
    if flags & !EXTERNAL != 0 {
        return Err(Status::InvalidValue);
    }
    event::wait(stream, event, flags == EXTERNAL)
}

pub(super) fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) -> Answer {
    priority.fill(|| Ok(stream::find(stream)?.1.priority()))
}

pub(super) fn cuStreamGetFlags(stream: Handle, flags: Out<u32>) -> Answer {
    flags.fill(|| Ok(stream::find(stream)?.1.flags()))
}

pub(super) fn cuStreamGetId(stream: Handle, id: Out<u64>) -> Answer {
    id.fill(|| Ok(stream::find(stream)?.1.handle as u64))
}

pub(super) fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) -> Answer {
    context.fill(|| Ok(stream::find(stream)?.0.handle))
}

/// The second result is a green context, a part of a device, which does not exist here.
pub(super) fn cuStreamGetCtx_v2(stream: Handle, context: Out<Handle>, part: Out<Handle>) -> Answer {
    if part.is_null() {
        return Err(Status::InvalidValue);
    }
    context.fill(|| Ok(stream::find(stream)?.0.handle))?;
    part.fill(|| Ok(0))
}

pub(super) fn cuStreamGetDevice(stream: Handle, device: Out<i32>) -> Answer {
    device.fill(|| Ok(stream::find(stream)?.0.device.ordinal))
}

pub(super) fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void) -> Answer {
    let (context, stream) = stream::find(stream)?;
    let function = function.ok_or(Status::InvalidValue)?;
    let call = HostCall { function, data: data.expose_provenance() };
    submission::submit(&context, &stream, Operation::Host(call), false).map(drop)
}

/// Unlike a host function, a callback runs even after a fault and receives its code.
pub(super) fn cuStreamAddCallback(handle: Handle, callback: Option<Callback>, data: *mut c_void, flags: u32) -> Answer {
    let (context, stream) = stream::find(handle)?;
    let callback = callback.filter(|_| flags == 0).ok_or(Status::InvalidValue)?;
    let (device, data) = (context.device, CallerData(data));
    let work = Box::new(move || {
        let code = device.fault().map_or(0, |fault| fault.status.code());
        // SAFETY: the caller vouches for its function and for what it passes through.
        data.pass_to(|data| unsafe { callback(handle, code, data) });
    });
    context.enqueue_regardless(&stream, Vec::new(), work).map(drop)
}

impl CallerData {
    /// Calls the function. As a method it makes a closure capture the whole wrapper, because the bare pointer is not
    /// `Send`.
    fn pass_to(self, function: impl FnOnce(*mut c_void)) {
        function(self.0);
    }
}

fn submit(operation: &WordOperation, stream: Handle) -> Answer {
    let WordOperation { kind, own_flags: _, address, value, flags, .. } = *operation;
    let narrow = value & u64::from(u32::MAX);
    match kind {
        1 => value::wait(stream, Word::Narrow(address), narrow, flags),
        2 => value::write(stream, Word::Narrow(address), narrow, flags),
        4 => value::wait(stream, Word::Wide(address), value, flags),
        5 => value::write(stream, Word::Wide(address), value, flags),
        // Flushes of remote writes and barriers need no action, because the stream is in order.
        3 | 6 => stream::find(stream).map(drop),
        _ => Err(Status::InvalidValue),
    }
}
