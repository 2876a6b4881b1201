//! C functions for events (`cuEvent*`).

use gpufleet_surface::argument::Out;

use crate::driver::{
    event,
    handle::Handle,
    status::{Answer, Status},
};

/// `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: u32 = 1;

pub(super) fn cuEventCreate(event: Out<Handle>, flags: u32) -> Answer {
    event.fill(|| event::create(flags))
}

pub(super) fn cuEventDestroy_v2(event: Handle) -> Answer {
    event::destroy(event)
}

pub(super) fn cuEventQuery(event: Handle) -> Answer {
    event::query(event)
}

pub(super) fn cuEventSynchronize(event: Handle) -> Answer {
    event::synchronize(event)
}

pub(super) fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) -> Answer {
    milliseconds.fill(|| event::elapsed_milliseconds(start, end))
}

pub(super) fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) -> Answer {
    milliseconds.fill(|| event::elapsed_milliseconds(start, end))
}

pub(super) fn cuEventRecord(event: Handle, stream: Handle) -> Answer {
    event::record(event, stream, false)
}

pub(super) fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) -> Answer {
    if flags & !EXTERNAL != 0 {
        return Err(Status::InvalidValue);
    }
    event::record(event, stream, flags == EXTERNAL)
}
