//! Puts copies, fills and kernels into the stream that a caller names by its handle.
//!
//! What the caller of a copy may count on: a copy *to* pageable memory has ended when the call returns, a copy *from* pageable
//! memory has at least read it; copies of pinned memory are free to go on. Calls that are not asynchronous take the
//! legacy default stream.

use std::sync::Arc;

use super::{
    capture,
    context::{Context, Job},
    copy::{Copy, Place, Return, Side, host},
    faults::Site,
    fill::Fill,
    handle::Handle,
    injection,
    launch::{Arguments, Kernel, Request},
    library,
    operation::Operation,
    queue::Point,
    status::Answer,
    stream::{self, object::Stream},
};

/// Up to this size a copy runs on the caller's thread when the stream is idle: waking a thread would cost as much.
const BRIEF_COPY_BYTES_MAX: usize = 256 << 10;
/// Up to this size a copy from pageable memory behind other work is put aside, as the driver does; larger ones wait.
const STAGED_BYTES_MAX: usize = 64 << 10;
/// Up to this many bytes a fill runs on the caller's thread when the stream is idle.
const BRIEF_FILL_BYTES_MAX: usize = 256 << 10;

/// Puts work into a stream, or records it where the stream is captured; there is no point to wait for then.
pub fn submit(context: &Arc<Context>, stream: &Arc<Stream>, work: Operation, brief: bool) -> Answer<Option<Point>> {
    if let Some(taken) = capture::of(stream)? {
        taken.add(work)?;
        return Ok(None);
    }
    let job = Job { after: Vec::new(), brief, work: Box::new(move || work.perform()) };
    context.enqueue(stream, job).map(Some)
}

impl Copy {
    /// Puts the copy into a stream and returns when the rules above allow it.
    pub fn submit(self, stream: Handle, returns: Return) -> Answer {
        let (context, stream) = stream::find(stream)?;
        let Some((to_extent, from_extent)) = self.check()? else { return Ok(()) };
        if returns == Return::Done {
            capture::forbid_running_in(&context, &stream)?;
            capture::forbid_unsafe()?;
        } else if let Some(taken) = capture::of(&stream)? {
            return taken.add(Operation::Copy(self)).map(drop);
        }
        injection::call(&context, Site::Copy)?;
        let (to, from) = (self.to.place, self.from.place);
        let host_takes_part = [to, from].iter().any(|place| matches!(place, Place::Host(_)));
        let reads_pageable = from.is_pageable(from_extent);
        let waits = match returns {
            Return::Done => host_takes_part,
            Return::Early => to.is_pageable(to_extent) || reads_pageable,
        };
        let stageable = returns == Return::Early && !to.is_pageable(to_extent) && from_extent <= STAGED_BYTES_MAX;
        if let Place::Host(pointer) = from
            && reads_pageable
            && stageable
            && !context.outstanding(&stream).is_empty()
        {
            return self.submit_staged(pointer, &context, &stream, from_extent);
        }
        let brief = waits || self.bytes() <= BRIEF_COPY_BYTES_MAX;
        let job = Job { after: Vec::new(), brief, work: Box::new(move || self.perform()) };
        let point = context.enqueue(&stream, job)?;
        if waits {
            point.wait();
            context.check()?;
        }
        Ok(())
    }

    fn submit_staged(self, pointer: usize, context: &Arc<Context>, stream: &Stream, extent: usize) -> Answer {
        let mut staged = vec![0u8; extent];
        // SAFETY: the caller vouches for the source, which is a host range of this extent.
        unsafe { std::ptr::copy_nonoverlapping(host(pointer), staged.as_mut_ptr(), extent) };
        let work = Box::new(move || {
            let place = Place::Host(staged.as_ptr().expose_provenance());
            Self { from: Side { place, ..self.from }, ..self }.perform()
        });
        context.enqueue(stream, Job { after: Vec::new(), brief: false, work }).map(drop)
    }
}

impl Fill {
    /// Puts the fill into a stream; the host never waits for it.
    pub fn submit(self, stream: Handle) -> Answer {
        let (context, stream) = stream::find(stream)?;
        let Some(device) = self.check(context.device)? else { return Ok(()) };
        let brief = self.width.saturating_mul(self.height) * self.value.bytes() <= BRIEF_FILL_BYTES_MAX;
        submit(&context, &stream, Operation::Fill(self, device), brief).map(drop)
    }
}

/// Checks a launch and puts it into its stream.
///
/// # Safety
/// As for [`Kernel::new`].
pub unsafe fn launch(request: &Request, arguments: Arguments) -> Answer {
    let (context, stream) = stream::find(request.stream)?;
    // SAFETY: passed on to the caller.
    let kernel = unsafe { kernel(&context, request, arguments) }?;
    submit(&context, &stream, Operation::Kernel(Arc::new(kernel)), false).map(drop)
}

/// Checks a launch in a context, whatever the stream. The function may be named by the handle of a library's kernel.
///
/// # Safety
/// As for [`Kernel::new`].
pub unsafe fn kernel(context: &Arc<Context>, request: &Request, arguments: Arguments) -> Answer<Kernel> {
    let (handle, function) = library::resolve(request.function, context)?;
    let request = Request { function: handle, ..*request };
    // SAFETY: passed on to the caller.
    unsafe { Kernel::new(context, function, &request, arguments) }
}
