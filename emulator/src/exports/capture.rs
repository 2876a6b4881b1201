//! C functions for stream capture (`cuStreamBeginCapture` and so on).

use gpufleet_surface::{
    argument::{In, Out},
    capture::Mode,
};

use super::graph::{handles, no_edge_data};
use crate::driver::{
    capture::{self, Part, State},
    graph,
    handle::Handle,
    status::{Answer, Status},
    stream,
};

/// `CU_STREAM_CAPTURE_STATUS_*`.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;
/// `CU_STREAM_ADD_CAPTURE_DEPENDENCIES` and `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const ADD: u32 = 0;
const SET: u32 = 1;

thread_local! {
    /// The array to which `cuStreamGetCaptureInfo` points its caller; valid until the thread's next such call.
    static DEPENDENCIES: std::cell::RefCell<Vec<Handle>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The places for the results of `cuStreamGetCaptureInfo`; only the first may not be null.
struct Info {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<*const Handle>,
    count: Out<usize>,
}

pub(super) fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> Answer {
    let wanted = Mode::from_number(mode.input().get()?)?;
    mode.fill(|| Ok(capture::exchange_mode(wanted).number()))
}

pub(super) fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> Answer {
    begin_capture(stream, Mode::from_number(mode)?)
}

pub(super) fn cuStreamBeginCaptureToGraph(
    stream: Handle,
    graph: Handle,
    dependencies: In<Handle>,
    data: In<u64>,
    count: usize,
    mode: u32,
) -> Answer {
    no_edge_data(data, count)?;
    let dependencies = handles(dependencies, count)?;
    let (mode, graph) = (Mode::from_number(mode)?, graph::find(graph)?);
    let (context, stream) = stream::find(stream)?;
    capture::begin(&context, &stream, mode, Some((graph, dependencies)))
}

/// The resulting graph is null if the capture failed.
pub(super) fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> Answer {
    if graph.is_null() {
        return Err(Status::InvalidValue);
    }
    let ended = stream::find(stream).and_then(|(_, stream)| capture::end(&stream));
    graph.set(ended.as_ref().map_or(0, |graph| graph.handle));
    ended.map(drop)
}

pub(super) fn cuStreamIsCapturing(stream: Handle, status: Out<u32>) -> Answer {
    status.fill(|| Ok(number(&state(stream)?)))
}

pub(super) fn cuStreamGetCaptureInfo_v2(
    stream: Handle,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<*const Handle>,
    count: Out<usize>,
) -> Answer {
    tell(stream, &Info { status, id, graph, dependencies, count })
}

/// The edge data is null, because no edge has any.
pub(super) fn cuStreamGetCaptureInfo_v3(
    stream: Handle,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<*const Handle>,
    data: Out<*const u64>,
    count: Out<usize>,
) -> Answer {
    data.set(std::ptr::null());
    tell(stream, &Info { status, id, graph, dependencies, count })
}

pub(super) fn cuStreamUpdateCaptureDependencies(
    stream: Handle,
    dependencies: In<Handle>,
    count: usize,
    flags: u32,
) -> Answer {
    update(stream, handles(dependencies, count)?, flags)
}

pub(super) fn cuStreamUpdateCaptureDependencies_v2(
    stream: Handle,
    dependencies: In<Handle>,
    data: In<u64>,
    count: usize,
    flags: u32,
) -> Answer {
    no_edge_data(data, count)?;
    update(stream, handles(dependencies, count)?, flags)
}

/// Begins a capture in a stream.
pub(super) fn begin_capture(stream: Handle, mode: Mode) -> Answer {
    let (context, stream) = stream::find(stream)?;
    capture::begin(&context, &stream, mode, None)
}

fn number(state: &State) -> u32 {
    match state {
        State::None => NONE,
        State::Active(_) => ACTIVE,
        State::Invalidated(_) => INVALIDATED,
    }
}

fn tell(stream: Handle, info: &Info) -> Answer {
    let state = state(stream)?;
    info.status.fill(|| Ok(number(&state)))?;
    if let State::Active(Part { capture, dependencies }) = state {
        info.id.set(capture.id);
        info.graph.set(capture.graph.handle);
        info.count.set(dependencies.len());
        DEPENDENCIES.with_borrow_mut(|kept| {
            *kept = dependencies;
            info.dependencies.set(kept.as_ptr());
        });
    }
    Ok(())
}

fn update(stream: Handle, dependencies: Vec<Handle>, flags: u32) -> Answer {
    let (_, stream) = stream::find(stream)?;
    let taken = capture::of(&stream)?.ok_or(Status::IllegalState)?;
    let Part { capture, dependencies: known } = taken.part();
    capture.graph.check_nodes(&dependencies)?;
    let mut all = match flags {
        ADD => known.clone(),
        SET => Vec::new(),
        _ => return Err(Status::InvalidValue),
    };
    for node in dependencies {
        if !all.contains(&node) {
            all.push(node);
        }
    }
    taken.depend_on(all);
    Ok(())
}

fn state(stream: Handle) -> Answer<State> {
    let (context, stream) = stream::find(stream)?;
    capture::state(&context, &stream)
}
