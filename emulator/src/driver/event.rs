//! Events: a point in a stream, and the time at which the stream reached it.

use std::{
    sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};

use super::{
    capture::{self, Part},
    context::{Job, contexts},
    current,
    handle::{Handle, Registry, fresh},
    operation::Operation,
    queue::Point,
    started,
    status::{Answer, Status},
    stream,
};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`, which is refused because processes do not share the emulated device.
const INTERPROCESS: u32 = 4;
const FLAGS_MASK: u32 = 7;

/// An event of a context.
#[derive(Debug)]
pub struct Event {
    pub context: Handle,
    timed: bool,
    mark: Mutex<Option<Mark>>,
}

/// What an event was last recorded in.
#[derive(Debug, Clone)]
enum Mark {
    Ran {
        point: Point,
        time: Arc<OnceLock<Instant>>,
    },
    /// A capturing stream: the mark is a position in a graph and has no time.
    Captured(Part),
}

/// Returns the registry of events.
pub fn events() -> Answer<&'static Registry<Event>> {
    static EVENTS: LazyLock<Registry<Event>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*EVENTS)
}

/// Creates an event in the current context.
pub fn create(flags: u32) -> Answer<Handle> {
    if flags & !FLAGS_MASK != 0 {
        return Err(Status::InvalidValue);
    }
    if flags & INTERPROCESS != 0 {
        return Err(Status::NotSupported);
    }
    let context = current::context()?.handle;
    let event = Event { context, timed: flags & DISABLE_TIMING == 0, mark: Mutex::default() };
    let handle = fresh();
    events()?.insert(handle, Arc::new(event));
    Ok(handle)
}

pub fn destroy(event: Handle) -> Answer {
    events()?.remove(event).map(drop)
}

/// Records the current point of the stream and forgets the event's earlier mark. In a capturing stream an external
/// record is a node that records the event when the graph runs.
pub fn record(handle: Handle, stream: Handle, external: bool) -> Answer {
    let (context, stream) = stream::find(stream)?;
    let event = events()?.get(handle)?;
    if event.context != context.handle {
        return Err(Status::InvalidHandle);
    }
    if let Some(taken) = capture::of(&stream)? {
        if external {
            return taken.add(Operation::Record(handle)).map(drop);
        }
        *event.mark() = Some(Mark::Captured(taken.part().clone()));
        return Ok(());
    }
    let time = Arc::new(OnceLock::new());
    let stamp = Arc::clone(&time);
    let work = Box::new(move || {
        stamp.get_or_init(Instant::now);
        Ok(())
    });
    let point = context.enqueue(&stream, Job { after: Vec::new(), brief: true, work })?;
    *event.mark() = Some(Mark::Ran { point, time });
    Ok(())
}

/// Records a point that exists already, with the cell for its time.
pub fn mark(event: Handle, point: Point, time: Arc<OnceLock<Instant>>) -> Answer {
    *events()?.get(event)?.mark() = Some(Mark::Ran { point, time });
    Ok(())
}

/// Returns the point that an event marks, if it was recorded in a running stream.
pub fn point(event: Handle) -> Option<Point> {
    match events().ok()?.get(event).ok()?.mark().clone() {
        Some(Mark::Ran { point, .. }) => Some(point),
        _ => None,
    }
}

/// Makes later work of the stream wait for the event's mark. An event without a mark delays nothing.
///
/// A stream that waits for a mark in a capture joins that capture. A capturing stream can wait for other marks only by
/// a node, an external wait.
pub fn wait(stream: Handle, event: Handle, external: bool) -> Answer {
    let (context, stream) = stream::find(stream)?;
    let mark = events()?.get(event)?.mark().clone();
    match (capture::of(&stream)?, mark) {
        (Some(taken), _) if external => taken.add(Operation::Wait(event)).map(drop),
        (Some(taken), Some(Mark::Captured(part))) => taken.join(&part),
        (Some(taken), Some(Mark::Ran { .. })) => Err(taken.spoil(Status::StreamCaptureIsolation)),
        (None, Some(Mark::Captured(part))) => capture::spread(&stream, &part),
        (None, Some(Mark::Ran { point, .. })) if !point.is_reached() => {
            let job = Job { after: vec![point], brief: true, work: Box::new(|| Ok(())) };
            context.enqueue(&stream, job).map(drop)
        }
        (_, None) | (None, Some(Mark::Ran { .. })) => Ok(()),
    }
}

/// Returns an error unless the mark has been reached; an event without a mark counts as reached.
pub fn query(event: Handle) -> Answer {
    let event = find(event)?;
    let reached = event.ran()?.is_none_or(|(point, _)| point.is_reached());
    if reached { event.check() } else { Err(Status::NotReady) }
}

pub fn synchronize(event: Handle) -> Answer {
    let event = find(event)?;
    if let Some((point, _)) = event.ran()? {
        point.wait();
    }
    event.check()
}

/// Returns the milliseconds between two marks that were reached.
pub fn elapsed_milliseconds(start: Handle, end: Handle) -> Answer<f32> {
    let (start, end) = (find(start)?.time()?, find(end)?.time()?);
    let seconds = match end.checked_duration_since(start) {
        Some(forward) => forward.as_secs_f64(),
        None => -start.duration_since(end).as_secs_f64(),
    };
    Ok((seconds * 1e3) as f32)
}

impl Event {
    fn check(&self) -> Answer {
        let context = contexts()?.get(self.context).map_err(|_| Status::ContextIsDestroyed)?;
        context.check()
    }

    fn time(&self) -> Answer<Instant> {
        let (_, time) = self.ran()?.filter(|_| self.timed).ok_or(Status::InvalidHandle)?;
        time.get().copied().ok_or(Status::NotReady)
    }

    /// Returns the mark in a running stream. Asking for one in a capture is an error that invalidates the capture.
    fn ran(&self) -> Answer<Option<(Point, Arc<OnceLock<Instant>>)>> {
        match self.mark().clone() {
            None => Ok(None),
            Some(Mark::Ran { point, time }) => {
                capture::forbid_unsafe()?;
                Ok(Some((point, time)))
            }
            Some(Mark::Captured(part)) => {
                part.capture.invalidate();
                Err(Status::CapturedEvent)
            }
        }
    }

    fn mark(&self) -> MutexGuard<'_, Option<Mark>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(event: Handle) -> Answer<Arc<Event>> {
    let event = events()?.get(event)?;
    event.check()?;
    Ok(event)
}
