//! C functions for events (`cuEvent*`).

use gpufleet_surface::argument::Out;

use super::exports;
use crate::driver::{event, handle::Handle, status::Status};

/// `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: u32 = 1;

exports! {
    fn cuEventCreate(event: Out<Handle>, flags: u32) {
        event.fill(|| event::create(flags))
    }

    fn cuEventDestroy_v2(event: Handle) {
        event::destroy(event)
    }

    fn cuEventQuery(event: Handle) {
        event::query(event)
    }

    fn cuEventSynchronize(event: Handle) {
        event::synchronize(event)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.fill(|| event::elapsed_milliseconds(start, end))
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.fill(|| event::elapsed_milliseconds(start, end))
    }

    per_thread ptsz:

    fn cuEventRecord(event: Handle, stream: Handle) {
        event::record(event, stream, false)
    }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) {
        if flags & !EXTERNAL != 0 {
            return Err(Status::InvalidValue);
        }
        event::record(event, stream, flags == EXTERNAL)
    }
}
