//! Submission: puts jobs into streams, and copies, fills and kernels into the stream that a caller names by its handle.
//!
//! Guarantees for the caller of a copy: when the call returns, a copy *to* pageable memory has ended, and a copy *from*
//! pageable memory has at least read it; copies of pinned memory may still run. Calls that are not asynchronous use the
//! legacy default stream.

use std::sync::Arc;

use gpufleet_surface::launch::{arguments::Arguments, shape::Shape};

use super::{
    capture,
    context::{Context, Job},
    copy::{Copy, Place, Return, Side, host},
    faults::Site,
    fill::Fill,
    function::Function,
    handle::Handle,
    injection,
    launch::{Kernel, Request},
    library,
    operation::Operation,
    queue::{Point, Task, Work},
    status::Answer,
    stream::{self, object::Stream},
};

/// Maximum bytes of a copy that runs on the caller's thread if the stream is idle; waking a thread would cost as much.
const BRIEF_COPY_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of a copy from pageable memory that is staged in a buffer if the stream is busy, as the driver does;
/// larger copies wait.
const STAGED_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a fill that runs on the caller's thread if the stream is idle.
const BRIEF_FILL_BYTES_MAX: usize = 256 << 10;

impl Context {
    /// Submits a job to a stream and returns the point where it has ended.
    pub fn enqueue(self: &Arc<Self>, stream: &Stream, job: Job) -> Answer<Point> {
        capture::forbid_running_in(self, stream)?;
        let context = Arc::clone(self);
        let Job { after, brief, work } = job;
        self.place(stream, Task { after, brief, work: Box::new(move || context.run(work)) })
    }

    /// Submits work that runs even after a fault. It must not unwind.
    pub fn enqueue_regardless(&self, stream: &Stream, after: Vec<Point>, work: Work) -> Answer<Point> {
        capture::forbid_running_in(self, stream)?;
        self.place(stream, Task { after, brief: false, work })
    }
}

/// Submits work to a stream; in a capturing stream records it, and there is no point to wait for.
pub fn submit(context: &Arc<Context>, stream: &Arc<Stream>, work: Operation, brief: bool) -> Answer<Option<Point>> {
    if let Some(taken) = capture::of(stream)? {
        taken.add(work)?;
        return Ok(None);
    }
    let job = Job { after: Vec::new(), brief, work: Box::new(move || work.perform()) };
    context.enqueue(stream, job).map(Some)
}

impl Copy {
    /// Submits the copy to a stream and returns when the guarantees above allow it.
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
    /// Submits the fill to a stream; the host never waits for it.
    pub fn submit(self, stream: Handle) -> Answer {
        let (context, stream) = stream::find(stream)?;
        let Some(device) = self.check(context.device)? else { return Ok(()) };
        let brief = self.width.saturating_mul(self.height) * self.value.bytes() <= BRIEF_FILL_BYTES_MAX;
        submit(&context, &stream, Operation::Fill(self, device), brief).map(drop)
    }
}

/// Checks a launch and submits it to its stream.
///
/// # Safety
/// As for [`Kernel::new`].
pub unsafe fn launch(request: &Request, arguments: Arguments) -> Answer {
    let (context, stream) = stream::find(request.stream)?;
    // SAFETY: passed on to the caller.
    let kernel = unsafe { kernel(&context, request, arguments) }?;
    submit(&context, &stream, Operation::Kernel(Arc::new(kernel)), false).map(drop)
}

/// Launches a function with the settings of its staged launch on a two-dimensional grid.
pub fn launch_staged(handle: Handle, function: &Function, grid: [u32; 2], stream: Handle) -> Answer {
    let staged = function.staged().clone();
    let arguments = match staged.params() {
        [] => Arguments::None,
        params => Arguments::Packed { pointer: params.as_ptr(), bytes: params.len() },
    };
    let request = Request {
        function: handle,
        shape: Shape { grid: [grid[0], grid[1], 1], block: staged.block, dynamic_shared: staged.dynamic_shared },
        stream,
        cooperative: false,
    };
    // SAFETY: the parameters have this many bytes, and live until the launch has copied them.
    unsafe { launch(&request, arguments) }
}

/// Checks a launch in a context, regardless of the stream. The function may be named by the handle of a library kernel.
///
/// # Safety
/// As for [`Kernel::new`].
pub unsafe fn kernel(context: &Arc<Context>, request: &Request, arguments: Arguments) -> Answer<Kernel> {
    let (handle, function) = library::resolve(request.function, context)?;
    let request = Request { function: handle, ..*request };
    // SAFETY: passed on to the caller.
    unsafe { Kernel::new(context, function, &request, arguments) }
}
