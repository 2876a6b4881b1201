//! Streams, and host functions in them.

use std::ffi::c_void;

use super::{call::Out, exports};
use crate::driver::{
    event,
    handle::Handle,
    operation::{self, HostCall, HostFunction, Operation},
    status::Status,
    stream,
};

/// `CUstreamCallback`.
type Callback = unsafe extern "C" fn(stream: Handle, status: i32, data: *mut c_void);

/// `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// What the caller passes through to its own function, on another thread.
#[derive(Clone, Copy)]
struct CallerData(*mut c_void);

// SAFETY: the headers say that host functions run on another thread; whoever passes the pointer accounts for that.
unsafe impl Send for CallerData {}

exports! {
    fn cuStreamCreate(stream: Out<Handle>, flags: u32) {
        stream.fill(|| stream::create(flags, 0))
    }

    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, priority: i32) {
        stream.fill(|| stream::create(flags, priority))
    }

    fn cuStreamDestroy_v2(stream: Handle) {
        stream::destroy(stream)
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
        priority.fill(|| Ok(stream::find(stream)?.1.priority))
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

    fn cuStreamGetDevice(stream: Handle, device: Out<i32>) {
        device.fill(|| Ok(stream::find(stream)?.0.device.ordinal))
    }

    fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void) {
        let (context, stream) = stream::find(stream)?;
        let function = function.ok_or(Status::InvalidValue)?;
        let call = HostCall { function, data: data.expose_provenance() };
        operation::submit(&context, &stream, Operation::Host(call), false).map(drop)
    }

    /// Unlike a host function, a callback is also called after a fault, and is told of it.
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
    /// Takes the whole wrapper along into a closure, which the bare pointer may not enter.
    fn pass_to(self, function: impl FnOnce(*mut c_void)) {
        function(self.0);
    }
}
