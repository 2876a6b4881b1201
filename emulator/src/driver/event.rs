//! Events: a point in a stream, and the time at which the stream came to it.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};

use super::{
    context::Job,
    current, driver,
    handle::{Handle, fresh},
    queue::Point,
    status::{Answer, Status},
    stream,
};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`: other processes have memory and queues of their own.
const INTERPROCESS: u32 = 4;
const FLAGS_MASK: u32 = 7;

/// An event of a context.
#[derive(Debug)]
pub struct Event {
    pub context: Handle,
    timed: bool,
    record: Mutex<Option<Record>>,
}

#[derive(Debug, Clone)]
struct Record {
    point: Point,
    time: Arc<OnceLock<Instant>>,
}

/// Makes an event in the current context.
pub fn create(flags: u32) -> Answer<Handle> {
    if flags & !FLAGS_MASK != 0 {
        return Err(Status::InvalidValue);
    }
    if flags & INTERPROCESS != 0 {
        return Err(Status::NotSupported);
    }
    let context = current::context()?.handle;
    let event = Event { context, timed: flags & DISABLE_TIMING == 0, record: Mutex::default() };
    let handle = fresh();
    driver()?.events.insert(handle, Arc::new(event));
    Ok(handle)
}

pub fn destroy(event: Handle) -> Answer {
    driver()?.events.remove(event).map(drop)
}

/// Marks the place that the stream has come to; an earlier mark of the event is forgotten.
pub fn record(event: Handle, stream: Handle) -> Answer {
    let (context, stream) = stream::find(stream)?;
    let event = driver()?.events.get(event)?;
    if event.context != context.handle {
        return Err(Status::InvalidHandle);
    }
    let time = Arc::new(OnceLock::new());
    let stamp = Arc::clone(&time);
    let work = Box::new(move || {
        stamp.get_or_init(Instant::now);
        Ok(())
    });
    let point = context.enqueue(&stream, Job { after: Vec::new(), brief: true, work })?;
    *event.record() = Some(Record { point, time });
    Ok(())
}

/// Makes what comes next in the stream wait for the event's mark. An event without a mark holds up nothing.
pub fn wait(stream: Handle, event: Handle) -> Answer {
    let (context, stream) = stream::find(stream)?;
    let Some(record) = driver()?.events.get(event)?.record().clone() else { return Ok(()) };
    if record.point.is_reached() {
        return Ok(());
    }
    let job = Job { after: vec![record.point], brief: true, work: Box::new(|| Ok(())) };
    context.enqueue(&stream, job).map(drop)
}

/// Has the mark been reached? True for an event without one.
pub fn query(event: Handle) -> Answer {
    let event = find(event)?;
    let reached = event.record().as_ref().is_none_or(|record| record.point.is_reached());
    if reached { event.check() } else { Err(Status::NotReady) }
}

pub fn synchronize(event: Handle) -> Answer {
    let event = find(event)?;
    let record = event.record().clone();
    if let Some(record) = record {
        record.point.wait();
    }
    event.check()
}

/// Milliseconds between two marks that were reached.
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
        let context = driver()?.contexts.get(self.context).map_err(|_| Status::ContextIsDestroyed)?;
        context.check()
    }

    fn time(&self) -> Answer<Instant> {
        let record = self.record().clone().filter(|_| self.timed).ok_or(Status::InvalidHandle)?;
        record.time.get().copied().ok_or(Status::NotReady)
    }

    fn record(&self) -> MutexGuard<'_, Option<Record>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(event: Handle) -> Answer<Arc<Event>> {
    let event = driver()?.events.get(event)?;
    event.check()?;
    Ok(event)
}
