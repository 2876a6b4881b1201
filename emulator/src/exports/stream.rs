//! C functions for streams (`cuStream*`) and for host functions in them.

use std::ffi::c_void;

use gpufleet_surface::argument::{In, Out};

use super::exports;
use crate::driver::{
    event,
    handle::Handle,
    host_call::{HostCall, HostFunction},
    operation::Operation,
    status::{Answer, Status},
    stream, submission,
    value::{self, Word},
};

/// `CUstreamCallback`.
type Callback = unsafe extern "C" fn(stream: Handle, status: i32, data: *mut c_void);

/// `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`, and attributes that are hints without effect here: access policy, synchronization
/// policy, domains of memory fences.
const PRIORITY: u32 = 8;
const HINTS: [u32; 4] = [1, 3, 9, 10];

/// `CUstreamBatchMemOpParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct WordOperation {
    kind: u32,
    /// Flags of the kinds without an address.
    own_flags: u32,
    address: u64,
    value: u64,
    flags: u32,
    alias: u64,
    rest: u64,
}

/// The argument of a caller's function, which runs on another thread.
#[derive(Clone, Copy)]
struct CallerData(*mut c_void);

// SAFETY: the headers say that host functions run on another thread, so the caller that passes the pointer has to allow
// for it.
unsafe impl Send for CallerData {}

exports! {
    fn cuStreamGetGreenCtx(stream: Handle, part: Out<Handle>) {
        part.fill(|| stream::find(stream).map(|_| 0))
    }

    fn cuStreamCreate(stream: Out<Handle>, flags: u32) {
        stream.fill(|| stream::create(flags, 0))
    }

    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, priority: i32) {
        stream.fill(|| stream::create(flags, priority))
    }

    fn cuStreamDestroy_v2(stream: Handle) {
        stream::destroy(stream)
    }

    per_thread ptsz:

    fn cuStreamGetAttribute(stream: Handle, attribute: u32, value: Out<[u64; 8]>) {
        let (_, stream) = stream::find(stream)?;
        value.fill(|| match attribute {
            PRIORITY => Ok([u64::from(stream.priority().cast_unsigned()), 0, 0, 0, 0, 0, 0, 0]),
            attribute if HINTS.contains(&attribute) => Ok([0; 8]),
            _ => Err(Status::InvalidValue),
        })
    }

    fn cuStreamSetAttribute(stream: Handle, attribute: u32, value: In<[u64; 8]>) {
        let (_, stream) = stream::find(stream)?;
        match attribute {
            PRIORITY => stream.set_priority((value.get()?[0] as u32).cast_signed()),
            attribute if HINTS.contains(&attribute) => {}
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    }

    fn cuStreamCopyAttributes(target: Handle, source: Handle) {
        let (_, source) = stream::find(source)?;
        stream::find(target)?.1.set_priority(source.priority());
        Ok(())
    }

    fn cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) {
        value::write(stream, Word::Narrow(address), value.into(), flags)
    }

    fn cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) {
        value::write(stream, Word::Wide(address), value, flags)
    }

    fn cuStreamWaitValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) {
        value::wait(stream, Word::Narrow(address), value.into(), flags)
    }

    fn cuStreamWaitValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) {
        value::wait(stream, Word::Wide(address), value, flags)
    }

    fn cuStreamBatchMemOp_v2(stream: Handle, count: u32, operations: In<WordOperation>, flags: u32) {
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        let all = (0..count as usize).map(|index| operations.at(index)).collect::<Answer<Vec<_>>>()?;
        all.iter().try_for_each(|operation| operation.submit(stream))
    }

    fn cuStreamSynchronize(stream: Handle) {
        stream::synchronize(stream)
    }

    fn cuStreamQuery(stream: Handle) {
        stream::query(stream)
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) {
        if flags & !EXTERNAL != 0 {
            return Err(Status::InvalidValue);
        }
        event::wait(stream, event, flags == EXTERNAL)
    }

    fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) {
        priority.fill(|| Ok(stream::find(stream)?.1.priority()))
    }

    fn cuStreamGetFlags(stream: Handle, flags: Out<u32>) {
        flags.fill(|| Ok(stream::find(stream)?.1.flags()))
    }

    fn cuStreamGetId(stream: Handle, id: Out<u64>) {
        id.fill(|| Ok(stream::find(stream)?.1.handle as u64))
    }

    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) {
        context.fill(|| Ok(stream::find(stream)?.0.handle))
    }

    /// The second result is a green context, a part of a device, which does not exist here.
    fn cuStreamGetCtx_v2(stream: Handle, context: Out<Handle>, part: Out<Handle>) {
        if part.is_null() {
            return Err(Status::InvalidValue);
        }
        context.fill(|| Ok(stream::find(stream)?.0.handle))?;
        part.fill(|| Ok(0))
    }

    fn cuStreamGetDevice(stream: Handle, device: Out<i32>) {
        device.fill(|| Ok(stream::find(stream)?.0.device.ordinal))
    }

    fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void) {
        let (context, stream) = stream::find(stream)?;
        let function = function.ok_or(Status::InvalidValue)?;
        let call = HostCall { function, data: data.expose_provenance() };
        submission::submit(&context, &stream, Operation::Host(call), false).map(drop)
    }

    /// Unlike a host function, a callback runs even after a fault and receives its code.
    fn cuStreamAddCallback(handle: Handle, callback: Option<Callback>, data: *mut c_void, flags: u32) {
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
}

impl CallerData {
    /// Calls the function. As a method it makes a closure capture the whole wrapper, because the bare pointer is not
    /// `Send`.
    fn pass_to(self, function: impl FnOnce(*mut c_void)) {
        function(self.0);
    }
}

impl WordOperation {
    fn submit(&self, stream: Handle) -> Answer {
        let Self { kind, own_flags: _, address, value, flags, .. } = *self;
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
}
