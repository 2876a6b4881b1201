//! Contexts: the streams, modules and memory of one device that belong together, and the order between the streams.
//!
//! The legacy default stream waits for everything submitted earlier to the context's blocking streams, and they wait
//! for it. A task waits for points in both; these are taken under one lock, so that every task sees one order.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use super::{
    device::{Device, DeviceFault},
    handle::{Handle, Registry, fresh},
    queue::{Point, Queue, Task},
    started,
    status::{Answer, Status},
    stream::object::{Stream, StreamKind},
};

/// A context of a device.
#[derive(Debug)]
pub struct Context {
    pub handle: Handle,
    pub device: &'static Device,
    pub legacy: Arc<Stream>,
    /// Set when the context ends or faults; running kernels then stop.
    pub cancel: AtomicBool,
    /// Wakes threads that wait for `cancel`.
    cancelled: (Mutex<()>, Condvar),
    pub limits: Mutex<[usize; LIMITS]>,
    pub cache_config: AtomicU32,
    ended: AtomicBool,
    flags: AtomicU32,
    /// Number of `cuCtxAttach` calls without a `cuCtxDetach`, not counting the creation.
    attached: AtomicU32,
    queues: Mutex<Vec<OwnQueue>>,
}

/// Number of limits that the headers define (`CUlimit`).
pub const LIMITS: usize = 7;
/// Default limits: stack in bytes per thread, printf buffer and heap in bytes, as on a device. The other limits concern
/// features that the emulator lacks.
const LIMITS_DEFAULT: [usize; LIMITS] = [1024, 1 << 20, 8 << 20, 0, 0, 128, 0];

#[derive(Debug)]
struct OwnQueue {
    queue: Weak<Queue>,
    blocking: bool,
}

/// Work for a stream that has not been submitted yet.
pub struct Job {
    /// Points to wait for, in addition to those that the stream's kind requires.
    pub after: Vec<Point>,
    /// True if it is short enough to run on the caller's thread when the stream is idle.
    pub brief: bool,
    pub work: Box<dyn FnOnce() -> Result<(), DeviceFault> + Send>,
}

/// Returns the registry of contexts.
pub fn contexts() -> Answer<&'static Registry<Context>> {
    static CONTEXTS: LazyLock<Registry<Context>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*CONTEXTS)
}

impl Context {
    /// Creates a context and registers it.
    pub fn create(device: &'static Device, flags: u32) -> Answer<Arc<Self>> {
        device.check()?;
        let handle = fresh();
        let legacy = Stream::new(handle, StreamKind::Legacy, 0);
        let queues = vec![OwnQueue { queue: Arc::downgrade(&legacy.queue), blocking: true }];
        let context = Arc::new(Self {
            handle,
            device,
            legacy: Arc::new(legacy),
            cancel: AtomicBool::new(false),
            cancelled: Default::default(),
            limits: Mutex::new(LIMITS_DEFAULT),
            cache_config: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            flags: AtomicU32::new(flags),
            attached: AtomicU32::new(0),
            queues: Mutex::new(queues),
        });
        contexts()?.insert(handle, Arc::clone(&context));
        Ok(context)
    }

    /// Ends the context's work: cancels kernels and accepts no more work.
    pub(super) fn end(&self) -> Answer {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Err(Status::ContextIsDestroyed);
        }
        self.cancel_kernels();
        self.wait_for_all();
        Ok(())
    }

    /// Cancels all kernels of the context.
    fn cancel_kernels(&self) {
        let _held = self.cancelled.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.cancel.store(true, Ordering::Relaxed);
        self.cancelled.1.notify_all();
    }

    /// Blocks until kernels are cancelled, as a kernel does that never ends by itself.
    pub fn wait_until_cancelled(&self) {
        let held = self.cancelled.0.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |_: &mut ()| !self.cancel.load(Ordering::Relaxed);
        drop(self.cancelled.1.wait_while(held, goes_on).unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns an error if the context has ended or faulted.
    pub fn check(&self) -> Answer {
        if self.ended.load(Ordering::Acquire) {
            return Err(Status::ContextIsDestroyed);
        }
        self.device.check()
    }

    pub fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    /// Detaches from the context; returns true if this was the last use.
    pub fn detach(&self) -> bool {
        let one_less = |attached: u32| attached.checked_sub(1);
        self.attached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
    }

    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Creates a stream of this context.
    pub fn new_stream(&self, kind: StreamKind, priority: i32) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(self.handle, kind, priority));
        let blocking = kind != StreamKind::NonBlocking;
        let mut queues = self.queues();
        queues.retain(|own| own.queue.strong_count() > 0);
        queues.push(OwnQueue { queue: Arc::downgrade(&stream.queue), blocking });
        stream
    }

    /// Returns the points that have to be reached before the stream counts as done.
    pub fn outstanding(&self, stream: &Stream) -> Vec<Point> {
        let mut points = match stream.kind {
            StreamKind::Legacy => self.blocking_points(&self.queues()),
            StreamKind::Blocking | StreamKind::NonBlocking => vec![stream.queue.last()],
        };
        points.retain(|point| !point.is_reached());
        points
    }

    /// Waits for all streams and returns the fault, if there is one.
    pub fn synchronize(&self) -> Answer {
        self.wait_for_all();
        self.check()
    }

    fn wait_for_all(&self) {
        let queues = self.queues().iter().filter_map(|own| own.queue.upgrade()).collect::<Vec<_>>();
        queues.iter().for_each(|queue| queue.last().wait());
    }

    /// Puts a task into the stream's queue, behind what the stream's kind makes it wait for. The caller has made sure
    /// that no capture forbids it.
    pub(super) fn place(&self, stream: &Stream, mut task: Task) -> Answer<Point> {
        stream.queue.wait_for_room();
        let queues = self.queues();
        match stream.kind {
            StreamKind::Legacy => task.after.extend(self.blocking_points(&queues)),
            StreamKind::Blocking => task.after.push(self.legacy.queue.last()),
            StreamKind::NonBlocking => {}
        }
        // The stream's own order needs no point, and waiting for itself would never end.
        task.after.retain(|point| !point.is_of(&stream.queue));
        let (point, turn) = stream.queue.push(task)?;
        drop(queues);
        if let Some(turn) = turn {
            turn.run();
        }
        Ok(point)
    }

    fn blocking_points(&self, queues: &[OwnQueue]) -> Vec<Point> {
        let blocking = queues.iter().filter(|own| own.blocking).filter_map(|own| own.queue.upgrade());
        blocking.map(|queue| queue.last()).collect()
    }

    /// Runs work now, unless there was a fault, and records a new fault.
    pub(super) fn run(&self, work: impl FnOnce() -> Result<(), DeviceFault>) {
        if self.device.fault().is_some() {
            return;
        }
        let fault = match panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault,
            Err(panic) => DeviceFault::new(Status::Unknown, panic_report(&*panic)),
        };
        // If the context is ending, the kernel was cancelled on purpose, which is not a fault of the device.
        if !self.ended.load(Ordering::Acquire) {
            self.device.raise(fault);
            self.cancel_kernels();
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<OwnQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn panic_report(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("internal error of the emulator: {}", text.unwrap_or_else(|| "no message".to_owned()))
}

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("after", &self.after).field("brief", &self.brief).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
