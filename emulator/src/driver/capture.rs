//! Stream capture: work that is submitted to a capturing stream becomes nodes of a graph and does not run.
//!
//! A capture begins in one stream, its origin, and spreads to other streams that wait for an event recorded in it.
//! These have to be joined to the origin again before the capture ends there. A call that breaks the rules invalidates
//! the captures that it concerns: they take no more work and can only be ended.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};

use gpufleet_surface::capture::Mode;

use super::{
    context::Context,
    graph::Graph,
    handle::Handle,
    operation::Operation,
    status::{Answer, Status},
    stream::object::{Stream, StreamKind},
};

/// A capture in progress.
#[derive(Debug)]
pub struct Capture {
    pub id: u64,
    pub graph: Arc<Graph>,
    mode: Mode,
    thread: ThreadId,
    context: Handle,
    origin: Handle,
    /// True if the caller provided the graph; it then survives a failed capture.
    graph_is_callers: bool,
    invalid: AtomicBool,
    /// The streams that take part.
    members: Mutex<Vec<Member>>,
    /// The nodes that the capture added.
    added: Mutex<Vec<Handle>>,
}

/// A stream that takes part in a capture.
#[derive(Debug)]
struct Member {
    stream: Handle,
    kind: StreamKind,
    /// The nodes that its next node depends on.
    dependencies: Vec<Handle>,
}

/// The state of one stream in a capture, or of an event that was recorded in one.
#[derive(Debug, Clone)]
pub struct Part {
    pub capture: Arc<Capture>,
    /// The nodes that the next node depends on.
    pub dependencies: Vec<Handle>,
}

/// A capturing stream, with the means to add its next node.
#[derive(Debug)]
pub struct Taken {
    stream: Handle,
    part: Part,
}

/// The result of `cuStreamGetCaptureInfo`.
#[derive(Debug)]
pub enum State {
    None,
    Active(Part),
    Invalidated(Part),
}

/// All captures of this process. Their number is kept separately, so that programs without captures pay little.
static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The calling thread's own mode (`cuThreadExchangeStreamCaptureMode`).
    static INTERACTION: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets the calling thread's mode and returns the previous one.
pub fn exchange_mode(mode: Mode) -> Mode {
    INTERACTION.replace(mode)
}

/// Begins a capture into a new graph, or into the caller's graph behind some of its nodes.
pub fn begin(context: &Context, stream: &Stream, mode: Mode, into: Option<(Arc<Graph>, Vec<Handle>)>) -> Answer {
    if stream.kind == StreamKind::Legacy {
        return Err(Status::StreamCaptureUnsupported);
    }
    if part_of(stream).is_some() {
        return Err(Status::IllegalState);
    }
    let graph_is_callers = into.is_some();
    let (graph, dependencies) = match into {
        Some((graph, dependencies)) => {
            graph.check_nodes(&dependencies)?;
            (graph, dependencies)
        }
        None => (Graph::new(), Vec::new()),
    };
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        mode,
        thread: thread::current().id(),
        context: context.handle,
        origin: stream.handle,
        graph_is_callers,
        invalid: AtomicBool::new(false),
        members: Mutex::new(vec![Member::new(stream, dependencies)]),
        added: Mutex::default(),
    });
    let mut captures = captures();
    captures.push(capture);
    COUNT.store(captures.len(), Ordering::Release);
    Ok(())
}

/// Ends the capture that began in a stream and returns its graph.
pub fn end(stream: &Stream) -> Answer<Arc<Graph>> {
    let Part { capture, dependencies } = part_of(stream).ok_or(Status::IllegalState)?;
    if capture.origin != stream.handle {
        capture.invalidate();
        return Err(Status::StreamCaptureUnmatched);
    }
    if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
        return Err(Status::StreamCaptureWrongThread);
    }
    capture.close();
    let joined = if capture.invalid.load(Ordering::Acquire) {
        Err(Status::StreamCaptureInvalidated)
    } else if capture.graph.reaches_all(&dependencies, &lock(&capture.added)) {
        Ok(())
    } else {
        Err(Status::StreamCaptureUnjoined)
    };
    if joined.is_err() && !capture.graph_is_callers {
        capture.graph.forget();
    }
    joined.map(|()| Arc::clone(&capture.graph))
}

/// Returns the capture state of a stream.
pub fn state(context: &Context, stream: &Stream) -> Answer<State> {
    if stream.kind == StreamKind::Legacy && concerned(context, StreamKind::Blocking).next().is_some() {
        return Err(Status::StreamCaptureImplicit);
    }
    Ok(match part_of(stream) {
        None => State::None,
        Some(part) if part.capture.check().is_err() => State::Invalidated(part),
        Some(part) => State::Active(part),
    })
}

/// Returns the stream's part in a capture, if it has one; an error if the capture is invalid.
pub fn of(stream: &Stream) -> Answer<Option<Taken>> {
    let Some(part) = part_of(stream) else { return Ok(None) };
    part.capture.check()?;
    Ok(Some(Taken { stream: stream.handle, part }))
}

/// Refuses a call that could disturb captures, such as one on memory or modules or one that waits, and invalidates
/// those captures.
pub fn forbid_unsafe() -> Answer {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let (mode, own) = (INTERACTION.get(), thread::current().id());
    let forbids = |capture: &Arc<Capture>| capture.mode.forbids(mode, capture.thread == own);
    invalidate_all(captures().iter().filter(|capture| forbids(capture)).cloned().collect())
}

/// Refuses a call that queries or waits for work in a stream if a capture forbids it.
pub fn forbid_waiting_for(context: &Context, stream: &Stream) -> Answer {
    forbid_running_in(context, stream)?;
    forbid_unsafe()
}

/// Refuses a call that waits for a whole context if a capture forbids it.
pub fn forbid_waiting_for_all(context: &Context) -> Answer {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let all = captures().iter().filter(|capture| capture.context == context.handle).cloned().collect();
    invalidate_all(all)?;
    forbid_unsafe()
}

/// Refuses work that has to run now, if the stream is capturing, or if it is the legacy default stream and would wait
/// for a capturing stream.
pub fn forbid_running_in(context: &Context, stream: &Stream) -> Answer {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    invalidate_all(part_of(stream).map(|part| part.capture).into_iter().collect())?;
    if stream.kind != StreamKind::Legacy {
        return Ok(());
    }
    let waited_for = concerned(context, StreamKind::Blocking).collect::<Vec<_>>();
    invalidate_all(waited_for).map_err(|_| Status::StreamCaptureImplicit)
}

/// Removes a stream that is destroyed. Its capture can't be completed any more.
pub fn abandon(stream: &Stream) {
    let Some(Part { capture, .. }) = part_of(stream) else { return };
    capture.invalidate();
    if capture.origin == stream.handle {
        capture.close();
    }
}

/// Returns the stream's part in a capture, even an invalid one.
fn part_of(stream: &Stream) -> Option<Part> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    captures().iter().find_map(|capture| {
        let members = lock(&capture.members);
        let member = members.iter().find(|member| member.stream == stream.handle)?;
        Some(Part { capture: Arc::clone(capture), dependencies: member.dependencies.clone() })
    })
}

/// Returns the captures that contain a stream of this kind in a context.
fn concerned(context: &Context, kind: StreamKind) -> impl Iterator<Item = Arc<Capture>> + use<> {
    let has_kind = |capture: &&Arc<Capture>| lock(&capture.members).iter().any(|member| member.kind == kind);
    let found = captures();
    let found = found.iter().filter(|capture| capture.context == context.handle).filter(has_kind).cloned();
    found.collect::<Vec<_>>().into_iter()
}

fn invalidate_all(broken: Vec<Arc<Capture>>) -> Answer {
    if broken.is_empty() {
        return Ok(());
    }
    broken.iter().for_each(|capture| capture.invalidate());
    Err(Status::StreamCaptureUnsupported)
}

impl Capture {
    /// Returns an error if the capture is invalid.
    pub fn check(&self) -> Answer {
        if self.invalid.load(Ordering::Acquire) { Err(Status::StreamCaptureInvalidated) } else { Ok(()) }
    }

    pub fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    /// Reports whether the capture is still in progress.
    pub fn is_open(&self) -> bool {
        captures().iter().any(|capture| capture.id == self.id)
    }

    /// Ends the capture for all its streams, which run work again.
    fn close(&self) {
        let mut captures = captures();
        captures.retain(|capture| capture.id != self.id);
        COUNT.store(captures.len(), Ordering::Release);
    }
}

impl Member {
    fn new(stream: &Stream, dependencies: Vec<Handle>) -> Self {
        Self { stream: stream.handle, kind: stream.kind, dependencies }
    }
}

impl Taken {
    /// Adds a node after the stream's latest ones.
    pub fn add(&self, work: Operation) -> Answer<Handle> {
        let node = self.part.capture.graph.add(work, &self.part.dependencies)?;
        lock(&self.part.capture.added).push(node);
        self.depend_on(vec![node]);
        Ok(node)
    }

    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Makes the stream wait for an event's mark in this capture.
    pub fn join(&self, mark: &Part) -> Answer {
        if mark.capture.id != self.part.capture.id {
            mark.capture.invalidate();
            let status = if mark.capture.is_open() { Status::StreamCaptureMerge } else { Status::CapturedEvent };
            return Err(self.spoil(status));
        }
        let mut dependencies = self.part.dependencies.clone();
        dependencies.extend(mark.dependencies.iter().filter(|node| !self.part.dependencies.contains(node)));
        self.depend_on(dependencies);
        Ok(())
    }

    /// Sets the nodes that the next node depends on.
    pub fn depend_on(&self, dependencies: Vec<Handle>) {
        let mut members = lock(&self.part.capture.members);
        if let Some(member) = members.iter_mut().find(|member| member.stream == self.stream) {
            member.dependencies = dependencies;
        }
    }

    /// Invalidates the capture and returns `status`.
    pub fn spoil(&self, status: Status) -> Status {
        self.part.capture.invalidate();
        status
    }
}

/// Adds a stream to the capture that an event was recorded in.
pub fn spread(stream: &Stream, mark: &Part) -> Answer {
    if !mark.capture.is_open() {
        return Err(Status::CapturedEvent);
    }
    mark.capture.check()?;
    if stream.kind == StreamKind::Legacy {
        mark.capture.invalidate();
        return Err(Status::StreamCaptureImplicit);
    }
    lock(&mark.capture.members).push(Member::new(stream, mark.dependencies.clone()));
    Ok(())
}

fn captures() -> MutexGuard<'static, Vec<Arc<Capture>>> {
    lock(&CAPTURES)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
