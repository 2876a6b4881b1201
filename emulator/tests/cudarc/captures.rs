//! Stream capture: what is recorded, what joins a capture, and what invalidates it.

use std::{ptr, sync::Arc, thread};

use cudarc::driver::{
    CudaContext, CudaStream, result,
    sys::{
        self, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status,
    },
};

use crate::platform::{assert_passed, code, context, in_child, is_child, separate_context};

const ILLEGAL_STATE: i32 = 401;
const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const MERGE: i32 = 902;
const UNMATCHED: i32 = 903;
const UNJOINED: i32 = 904;
const ISOLATION: i32 = 905;
const IMPLICIT: i32 = 906;
const CAPTURED_EVENT: i32 = 907;
const WRONG_THREAD: i32 = 908;

const NO_FLAGS: CUgraphInstantiate_flags = CUgraphInstantiate_flags(0);

/// Captures affect calls of all threads, so each test uses a mode that disturbs no other test.
fn begin(stream: &CudaStream) {
    stream.begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
}

/// Makes a stream of a separate context, because concurrent tests may wait for their own.
fn stream() -> (Arc<CudaContext>, Arc<CudaStream>) {
    let context = separate_context();
    let stream = context.new_stream().unwrap();
    (context, stream)
}

/// Ends a capture and drops its graph.
fn end(stream: &Arc<CudaStream>) -> i32 {
    code(stream.end_capture(NO_FLAGS))
}

fn event() -> sys::CUevent {
    result::event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING).unwrap()
}

#[test]
fn captured_work_runs_when_its_graph_is_launched_and_each_time() {
    let (_, stream) = stream();
    let mut data = stream.clone_htod(&[1u32; 4]).unwrap();
    stream.synchronize().unwrap();
    begin(&stream);
    assert_eq!(stream.capture_status(), Ok(Status::CU_STREAM_CAPTURE_STATUS_ACTIVE));
    stream.memset_zeros(&mut data).unwrap();
    let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
    assert_eq!(stream.capture_status(), Ok(Status::CU_STREAM_CAPTURE_STATUS_NONE));
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [1; 4]);
    graph.upload().unwrap();
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [0; 4]);
    stream.memcpy_htod(&[2u32; 4], &mut data).unwrap();
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [0; 4]);
}

#[test]
fn an_empty_capture_gives_an_empty_graph() {
    let (_, stream) = stream();
    begin(&stream);
    let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
    graph.launch().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_fork_is_captured_and_has_to_be_joined() {
    let (context, first) = stream();
    let second = context.new_stream().unwrap();
    let (forked, joined) = (event(), event());
    // SAFETY: streams, events and memory are live.
    unsafe {
        let memory = result::malloc_sync(8).unwrap();
        let fill = |stream: &CudaStream, offset, value| {
            assert_eq!(sys::cuMemsetD32Async(memory + offset, value, 1, stream.cu_stream()) as i32, 0);
        };
        let fork = || {
            begin(&first);
            fill(&first, 0, 5);
            result::event::record(forked, first.cu_stream()).unwrap();
            let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            result::stream::wait_event(second.cu_stream(), forked, flags).unwrap();
            assert_eq!(second.capture_status(), Ok(Status::CU_STREAM_CAPTURE_STATUS_ACTIVE));
            fill(&second, 4, 6);
        };
        fork();
        assert_eq!(end(&first), UNJOINED);
        assert_eq!(second.capture_status(), Ok(Status::CU_STREAM_CAPTURE_STATUS_NONE));

        fork();
        assert_eq!(end(&second), UNMATCHED);
        assert_eq!(end(&first), INVALIDATED);

        fork();
        result::event::record(joined, second.cu_stream()).unwrap();
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        result::stream::wait_event(first.cu_stream(), joined, flags).unwrap();
        let graph = first.end_capture(NO_FLAGS).unwrap().unwrap();
        graph.launch().unwrap();
        first.synchronize().unwrap();
        let mut values = [0u32; 2];
        result::memcpy_dtoh_sync(&mut values, memory).unwrap();
        assert_eq!(values, [5, 6]);
        result::free_sync(memory).unwrap();
        result::event::destroy(forked).unwrap();
        result::event::destroy(joined).unwrap();
    }
}

#[test]
fn a_capture_can_be_asked_about_and_its_dependencies_be_set() {
    let (_, stream) = stream();
    let memory = stream.alloc_zeros::<u32>(1).unwrap();
    let address = cudarc::driver::DevicePtr::device_ptr(&memory, &stream).0;
    stream.synchronize().unwrap();
    begin(&stream);
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph, mut nodes, mut count) = (0, ptr::null_mut(), ptr::null(), 9);
    // SAFETY: all results have their places; the nodes are read before the thread asks again.
    unsafe {
        let on = stream.cu_stream();
        let mut ask = || {
            let asked =
                sys::cuStreamGetCaptureInfo_v2(on, &mut status, &mut id, &mut graph, &mut nodes, &mut count) as i32;
            assert_eq!((asked, status), (0, Status::CU_STREAM_CAPTURE_STATUS_ACTIVE));
            assert!(id > 0 && !graph.is_null());
            std::slice::from_raw_parts(nodes, count).to_vec()
        };
        assert_eq!(ask(), []);
        assert_eq!(sys::cuMemsetD32Async(address, 1, 1, on) as i32, 0);
        let first = ask();
        assert_eq!(first.len(), 1);
        assert_eq!(sys::cuMemsetD32Async(address, 2, 1, on) as i32, 0);
        let second = ask();
        assert_ne!(first, second);
        let mut both = first.clone();
        assert_eq!(sys::cuStreamUpdateCaptureDependencies(on, both.as_mut_ptr(), 1, 0) as i32, 0);
        assert_eq!(ask(), [second[0], first[0]]);
        assert_eq!(sys::cuStreamUpdateCaptureDependencies(on, both.as_mut_ptr(), 1, 1) as i32, 0);
        assert_eq!(ask(), first);
        both[0] = ptr::null_mut();
        assert_eq!(sys::cuStreamUpdateCaptureDependencies(on, both.as_mut_ptr(), 1, 1) as i32, 1);
    }
    // The second node is no longer a dependency of the stream.
    assert_eq!(end(&stream), UNJOINED);
}

#[test]
fn waiting_for_a_captured_stream_or_event_spoils_the_capture() {
    let (_, stream) = stream();
    let event = event();
    // SAFETY: stream and event are live.
    unsafe {
        begin(&stream);
        assert_eq!(sys::cuStreamQuery(stream.cu_stream()) as i32, UNSUPPORTED);
        assert_eq!(stream.capture_status(), Ok(Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED));
        assert_eq!(code(result::event::record(event, stream.cu_stream())), INVALIDATED);
        assert_eq!(end(&stream), INVALIDATED);
        begin(&stream);
        assert_eq!(code(result::stream::synchronize(stream.cu_stream())), UNSUPPORTED);
        assert_eq!(end(&stream), INVALIDATED);
        begin(&stream);
        result::event::record(event, stream.cu_stream()).unwrap();
        assert_eq!(code(result::event::query(event)), CAPTURED_EVENT);
        assert_eq!(end(&stream), INVALIDATED);
        begin(&stream);
        result::event::record(event, stream.cu_stream()).unwrap();
        assert_eq!(code(result::event::synchronize(event)), CAPTURED_EVENT);
        assert_eq!(end(&stream), INVALIDATED);
        // Recorded in a running stream, it is an ordinary event again.
        result::event::record(event, stream.cu_stream()).unwrap();
        result::event::synchronize(event).unwrap();
        result::event::destroy(event).unwrap();
    }
}

#[test]
fn calls_that_could_disturb_a_capture_are_refused_by_its_mode() {
    let (_, stream) = stream();
    // SAFETY: what is allocated is freed.
    unsafe {
        begin(&stream);
        assert_eq!(code(result::malloc_sync(16)), UNSUPPORTED);
        assert_eq!(end(&stream), INVALIDATED);
        stream.begin_capture(Mode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        let memory = result::malloc_sync(16).unwrap();
        assert_eq!(end(&stream), 0);
        begin(&stream);
        let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        assert_eq!(sys::cuThreadExchangeStreamCaptureMode(&mut mode) as i32, 0);
        assert_eq!(mode, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
        result::free_sync(memory).unwrap();
        assert_eq!(sys::cuThreadExchangeStreamCaptureMode(&mut mode) as i32, 0);
        assert_eq!(mode, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
        assert_eq!(end(&stream), 0);
    }
}

#[test]
fn a_capture_in_one_thread_leaves_others_alone() {
    let (_, stream) = stream();
    begin(&stream);
    let elsewhere = Arc::clone(&stream);
    thread::spawn(move || {
        let context = context();
        // SAFETY: what is allocated is freed.
        unsafe { result::free_sync(result::malloc_sync(16).unwrap()) }.unwrap();
        context.bind_to_thread().unwrap();
        assert_eq!(end(&elsewhere), WRONG_THREAD);
    })
    .join()
    .unwrap();
    assert_eq!(end(&stream), 0);
}

#[test]
fn the_legacy_default_stream_keeps_away_from_captures_of_blocking_streams() {
    if !is_child() {
        const TEST: &str = "captures::the_legacy_default_stream_keeps_away_from_captures_of_blocking_streams";
        return assert_passed(&in_child(TEST, &[]));
    }
    context();
    let blocking = result::stream::create(result::stream::StreamKind::Default).unwrap();
    let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: streams and memory are live; null is the legacy default stream.
    unsafe {
        let memory = result::malloc_sync(4).unwrap();
        assert_eq!(code(result::stream::begin_capture(ptr::null_mut(), mode)), UNSUPPORTED);
        assert_eq!(code(result::stream::end_capture(blocking)), ILLEGAL_STATE);
        result::stream::begin_capture(blocking, mode).unwrap();
        assert_eq!(code(result::stream::begin_capture(blocking, mode)), ILLEGAL_STATE);
        assert_eq!(code(result::stream::is_capturing(ptr::null_mut())), IMPLICIT);
        assert_eq!(result::stream::is_capturing(blocking).unwrap(), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        assert_eq!(code(result::memcpy_htod_sync(memory, &[1u32])), IMPLICIT);
        assert_eq!(code(result::stream::end_capture(blocking)), INVALIDATED);
        result::stream::begin_capture(blocking, mode).unwrap();
        assert_eq!(code(result::ctx::synchronize()), UNSUPPORTED);
        assert_eq!(code(result::stream::end_capture(blocking)), INVALIDATED);
        result::memcpy_htod_sync(memory, &[1u32]).unwrap();
        result::stream::destroy(blocking).unwrap();
        result::free_sync(memory).unwrap();
    }
}

#[test]
fn captures_depend_neither_on_work_outside_nor_on_each_other() {
    let (context, first) = stream();
    let second = context.new_stream().unwrap();
    let (outside, inside) = (event(), event());
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: streams and events are live.
    unsafe {
        result::event::record(outside, first.cu_stream()).unwrap();
        begin(&first);
        assert_eq!(code(result::stream::wait_event(first.cu_stream(), outside, flags)), ISOLATION);
        assert_eq!(end(&first), INVALIDATED);

        begin(&first);
        begin(&second);
        result::event::record(inside, first.cu_stream()).unwrap();
        assert_eq!(code(result::stream::wait_event(second.cu_stream(), inside, flags)), MERGE);
        assert_eq!((end(&first), end(&second)), (INVALIDATED, INVALIDATED));

        // An event recorded in an ended capture has no time.
        assert_eq!(code(result::stream::wait_event(second.cu_stream(), inside, flags)), CAPTURED_EVENT);
        result::event::destroy(outside).unwrap();
        result::event::destroy(inside).unwrap();
    }
}

#[test]
fn external_marks_and_waits_become_nodes() {
    let (_, stream) = stream();
    let (marked, waited) = (event(), event());
    // SAFETY: stream and events are live.
    unsafe {
        let on = stream.cu_stream();
        result::event::record(waited, on).unwrap();
        begin(&stream);
        assert_eq!(sys::cuStreamWaitEvent(on, waited, 1) as i32, 0);
        assert_eq!(sys::cuEventRecordWithFlags(marked, on, 1) as i32, 0);
        let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
        let (mut nodes, mut count) = ([ptr::null_mut(); 4], 4);
        assert_eq!(sys::cuGraphGetNodes(graph.cu_graph(), nodes.as_mut_ptr(), &mut count) as i32, 0);
        assert_eq!((count, nodes[2].is_null()), (2, true));
        let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        assert_eq!(sys::cuGraphNodeGetType(nodes[0], &mut kind) as i32, 0);
        assert_eq!(kind, sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT);
        assert_eq!(sys::cuGraphNodeGetType(nodes[1], &mut kind) as i32, 0);
        assert_eq!(kind, sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        graph.launch().unwrap();
        result::event::synchronize(marked).unwrap();
        stream.synchronize().unwrap();
        result::event::destroy(marked).unwrap();
        result::event::destroy(waited).unwrap();
    }
}

#[test]
fn captured_allocations_are_the_graphs() {
    let (_, stream) = stream();
    let mut result = stream.alloc_zeros::<u32>(1).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: stream, graph and memory are live.
    unsafe {
        begin(&stream);
        let memory = result::malloc_async(stream.cu_stream(), 4).unwrap();
        assert_eq!(sys::cuMemsetD32Async(memory, 77, 1, stream.cu_stream()) as i32, 0);
        let target = cudarc::driver::DevicePtrMut::device_ptr_mut(&mut result, &stream).0;
        result::memcpy_dtod_async(target, memory, 4, stream.cu_stream()).unwrap();
        result::free_async(memory, stream.cu_stream()).unwrap();
        let graph = stream.end_capture(NO_FLAGS).unwrap().unwrap();
        for _ in 0..2 {
            stream.memset_zeros(&mut result).unwrap();
            graph.launch().unwrap();
            assert_eq!(stream.clone_dtoh(&result).unwrap(), [77]);
        }
        drop(graph);
        stream.synchronize().unwrap();
        assert_eq!(code(result::memcpy_dtoh_sync(&mut [0u32], memory)), 1);
    }
}
