//! Order between streams, events and host functions.

use std::{
    ffi::c_void,
    sync::mpsc::{self, Receiver, Sender},
};

use cudarc::driver::{
    result::{self, stream::StreamKind},
    sys::{self, CUevent_flags, CUstream},
};

use crate::platform::{code, context, separate_context};

const NOT_READY: i32 = 600;

/// Holds up a stream until the gate is opened.
struct Gate {
    go: Sender<()>,
}

impl Gate {
    fn close(stream: CUstream) -> Self {
        let (go, held) = mpsc::channel::<()>();
        let held = Box::into_raw(Box::new(held)).cast::<c_void>();
        // SAFETY: the function takes the receiver over, and runs once.
        unsafe { result::stream::launch_host_function(stream, wait_at_gate, held) }.unwrap();
        Self { go }
    }

    fn open(self) {
        self.go.send(()).unwrap();
    }
}

pub unsafe extern "C" fn wait_at_gate(held: *mut c_void) {
    // SAFETY: `Gate::close` passes a receiver with no other owner.
    let held = unsafe { Box::from_raw(held.cast::<Receiver<()>>()) };
    held.recv().unwrap();
}

unsafe extern "C" fn report(channel: *mut c_void) {
    // SAFETY: the test passes a sender that outlives the stream's work.
    let channel = unsafe { &*channel.cast::<Sender<&str>>() };
    channel.send("host function").unwrap();
}

#[test]
fn work_in_a_stream_does_not_hold_up_the_caller() {
    let stream = context().new_stream().unwrap();
    let gate = Gate::close(stream.cu_stream());
    let mut device = stream.alloc_zeros::<u8>(4).unwrap();
    stream.memcpy_htod(&[1, 2, 3, 4], &mut device).unwrap();
    // SAFETY: the stream is live.
    assert_eq!(unsafe { sys::cuStreamQuery(stream.cu_stream()) } as i32, NOT_READY);
    gate.open();
    assert_eq!(stream.clone_dtoh(&device).unwrap(), [1, 2, 3, 4]);
    stream.synchronize().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { sys::cuStreamQuery(stream.cu_stream()) } as i32, 0);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let context = context();
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut device = first.alloc_zeros::<u32>(1).unwrap();
    let gate = Gate::close(first.cu_stream());
    first.memcpy_htod(&[7], &mut device).unwrap();
    let written = first.record_event(None).unwrap();
    second.wait(&written).unwrap();
    let after = second.record_event(None).unwrap();
    assert!(!written.is_complete() && !after.is_complete());
    gate.open();
    after.synchronize().unwrap();
    assert!(written.is_complete());
    assert_eq!(second.clone_dtoh(&device).unwrap(), [7]);
}

#[test]
fn the_legacy_default_stream_and_blocking_streams_wait_for_each_other() {
    // A separate context, as below, because another test's legacy stream would wait for this gate.
    let context = separate_context();
    let blocking = result::stream::create(StreamKind::Default).unwrap();
    let free = result::stream::create(StreamKind::NonBlocking).unwrap();
    let event = || context.new_event(None).unwrap();
    let (on_legacy, on_free, on_blocking) = (event(), event(), event());
    let gate = Gate::close(blocking);
    // SAFETY: streams and events are live; null is the legacy default stream.
    unsafe {
        result::event::record(on_legacy.cu_event(), std::ptr::null_mut()).unwrap();
        result::event::record(on_free.cu_event(), free).unwrap();
        result::event::record(on_blocking.cu_event(), blocking).unwrap();
        assert!(on_free.is_complete() && !on_legacy.is_complete() && !on_blocking.is_complete());
        gate.open();
        result::stream::synchronize(std::ptr::null_mut()).unwrap();
        assert!(on_legacy.is_complete() && on_blocking.is_complete());
        result::stream::destroy(blocking).unwrap();
        result::stream::destroy(free).unwrap();
    }
}

#[test]
fn a_host_function_runs_in_its_streams_order() {
    let stream = context().new_stream().unwrap();
    let (tell, told) = mpsc::channel::<&str>();
    let gate = Gate::close(stream.cu_stream());
    // SAFETY: the sender outlives the synchronization below.
    let data = std::ptr::from_ref(&tell).cast_mut().cast();
    // SAFETY: as above.
    unsafe { result::stream::launch_host_function(stream.cu_stream(), report, data) }.unwrap();
    tell.send("caller").unwrap();
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["caller", "host function"]);
}

#[test]
fn events_tell_the_time_between_two_places_of_a_stream() {
    let context = context();
    let stream = context.new_stream().unwrap();
    let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(timed).unwrap();
    let gate = Gate::close(stream.cu_stream());
    let end = stream.record_event(timed).unwrap();
    // SAFETY: both events are live.
    assert_eq!(code(unsafe { result::event::elapsed(start.cu_event(), end.cu_event()) }), NOT_READY);
    gate.open();
    let milliseconds = start.elapsed_ms(&end).unwrap();
    assert!(milliseconds > 0.0, "{milliseconds}");
    let untimed = stream.record_event(None).unwrap();
    // SAFETY: as above.
    assert_eq!(code(unsafe { result::event::elapsed(start.cu_event(), untimed.cu_event()) }), 400);
}

#[test]
fn stale_handles_are_errors() {
    let context = context();
    // SAFETY: that stale handles are refused is what is tested.
    unsafe {
        let stream = result::stream::create(StreamKind::NonBlocking).unwrap();
        let event = result::event::create(CUevent_flags::CU_EVENT_DEFAULT).unwrap();
        assert_eq!(code(result::event::record(stream.cast(), event.cast())), 400);
        result::stream::destroy(stream).unwrap();
        result::event::destroy(event).unwrap();
        assert_eq!(code(result::stream::synchronize(stream)), 400);
        assert_eq!(code(result::stream::destroy(stream)), 400);
        assert_eq!(code(result::event::synchronize(event)), 400);
        assert_eq!(code(result::module::get_function(std::ptr::null_mut(), c"k".to_owned())), 400);
    }
    context.check_err().unwrap();
}

#[test]
fn a_destroyed_stream_still_does_what_it_was_given() {
    let context = context();
    let (tell, told) = mpsc::channel::<&str>();
    let stream = result::stream::create(StreamKind::NonBlocking).unwrap();
    let gate = Gate::close(stream);
    // SAFETY: the sender lives until its message has come.
    unsafe {
        let data = std::ptr::from_ref(&tell).cast_mut().cast();
        result::stream::launch_host_function(stream, report, data).unwrap();
        result::stream::destroy(stream).unwrap();
    }
    gate.open();
    assert_eq!(told.recv(), Ok("host function"));
    context.synchronize().unwrap();
}

#[test]
fn a_stream_writes_a_word_and_another_waits_for_it() {
    let context = context();
    let (writer, waiter) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    // SAFETY: the memory outlives what is done with it.
    unsafe {
        let memory = result::malloc_sync(16).unwrap();
        result::memset_d8_sync(memory, 0, 16).unwrap();
        let gate = Gate::close(writer.cu_stream());
        assert_eq!(sys::cuStreamWriteValue32_v2(writer.cu_stream(), memory, 5, 0) as i32, 0);
        assert_eq!(sys::cuStreamWriteValue64_v2(writer.cu_stream(), memory + 8, 1 << 40, 0) as i32, 0);
        assert_eq!(sys::cuStreamWaitValue32_v2(waiter.cu_stream(), memory, 4, 0) as i32, 0);
        assert_eq!(sys::cuStreamWaitValue64_v2(waiter.cu_stream(), memory + 8, 1 << 40, 1) as i32, 0);
        let after = waiter.record_event(None).unwrap();
        assert!(!after.is_complete());
        gate.open();
        after.synchronize().unwrap();
        let mut words = [0u32; 4];
        result::memcpy_dtoh_sync(&mut words, memory).unwrap();
        assert_eq!(words, [5, 0, 0, 1 << 8]);
        assert_eq!(sys::cuStreamWriteValue32_v2(writer.cu_stream(), memory + 2, 5, 0) as i32, 1);
        assert_eq!(sys::cuStreamWriteValue32_v2(writer.cu_stream(), memory + 4096, 5, 0) as i32, 1);
        assert_eq!(sys::cuStreamWaitValue32_v2(waiter.cu_stream(), memory, 4, 9) as i32, 1);
        result::free_sync(memory).unwrap();
    }
}

#[test]
fn priorities_are_kept_within_their_range() {
    let context = context();
    let (mut least, mut greatest, mut priority) = (9, 9, 9);
    let mut stream = std::ptr::null_mut();
    // SAFETY: all results have their places.
    unsafe {
        assert_eq!(sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) as i32, 0);
        assert!(greatest < least);
        assert_eq!(sys::cuStreamCreateWithPriority(&mut stream, 1, greatest - 10) as i32, 0);
        assert_eq!(sys::cuStreamGetPriority(stream, &mut priority) as i32, 0);
        assert_eq!(priority, greatest);
        let attribute = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
        let value = sys::CUlaunchAttributeValue { priority: -1 };
        assert_eq!(sys::cuStreamSetAttribute(stream, attribute, &value) as i32, 0);
        assert_eq!(sys::cuStreamGetPriority(stream, &mut priority) as i32, 0);
        assert_eq!(priority, -1);
        result::stream::destroy(stream).unwrap();
        assert_eq!(sys::cuStreamCreateWithPriority(&mut stream, 2, 0) as i32, 1);
    }
    context.check_err().unwrap();
}

#[test]
fn a_threads_own_default_stream_does_not_wait_for_blocking_streams() {
    type Record = unsafe extern "C" fn(sys::CUevent, CUstream) -> i32;
    // A separate context, because another test's legacy stream would wait for the gate, and this thread's stream for
    // that stream.
    let context = separate_context();
    let event = context.new_event(None).unwrap();
    let blocking = result::stream::create(StreamKind::Default).unwrap();
    let gate = Gate::close(blocking);
    // SAFETY: the symbol has this signature; event and streams are live.
    unsafe {
        let twin = crate::platform::library().get::<Record>(b"cuEventRecord_ptsz").unwrap();
        assert_eq!(twin(event.cu_event(), std::ptr::null_mut()), 0);
        event.synchronize().unwrap();
        result::event::record(event.cu_event(), std::ptr::null_mut()).unwrap();
        assert!(!event.is_complete());
        gate.open();
        event.synchronize().unwrap();
        result::stream::destroy(blocking).unwrap();
    }
}
