//! Stream memory operations (`cuStreamWriteValue*`, `cuStreamWaitValue*`): streams write a word, or wait until one has
//! a value.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::{
    capture,
    context::{Context, Job},
    device::{Device, DeviceFault},
    driver,
    handle::Handle,
    status::{Answer, Status},
    stream,
};
use crate::memory::{BadAddress, Memory};

/// Interval between reads of a word. Polling is necessary, because kernels and the host write without waking the
/// reader.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// Conditions (`CU_STREAM_WAIT_VALUE_*`): at least, in the cyclic order of numbers; equal; a bit set in both; a bit
/// clear in both.
const AT_LEAST: u32 = 0;
const EQUAL: u32 = 1;
const AND: u32 = 2;
const NOR: u32 = 3;
/// `CU_STREAM_WAIT_VALUE_FLUSH`. It concerns writes of other devices, so it has no effect here.
const FLUSH: u32 = 1 << 30;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const NO_BARRIER: u32 = 1;

/// A word of 32 or 64 bits in memory that devices reach.
#[derive(Debug, Clone, Copy)]
pub enum Word {
    Narrow(u64),
    Wide(u64),
}

impl Word {
    fn address(self) -> (u64, u64) {
        match self {
            Self::Narrow(address) => (address, 4),
            Self::Wide(address) => (address, 8),
        }
    }

    /// Returns the device that maps the word: its own, or the context's for pinned memory.
    fn check(self, context: &Context, writes: bool) -> Answer<&'static Device> {
        let (address, bytes) = self.address();
        let is_pinned = driver()?.host.covers(address as usize, bytes as usize);
        let device =
            driver()?.device_of(address).or_else(|| is_pinned.then_some(context.device)).ok_or(Status::InvalidValue)?;
        let fits = address.is_multiple_of(bytes) && check(&device.memory, self, writes).is_ok();
        if fits { Ok(device) } else { Err(Status::InvalidValue) }
    }

    fn read(self, device: &Device) -> Result<u64, DeviceFault> {
        self.still_there(device, false)?;
        let (address, _) = self.address();
        // SAFETY: just checked to be in live memory, and aligned; kernels and the host may write it at the same time.
        Ok(unsafe {
            match self {
                Self::Narrow(_) => (*(address as *const AtomicU32)).load(Ordering::Acquire).into(),
                Self::Wide(_) => (*(address as *const AtomicU64)).load(Ordering::Acquire),
            }
        })
    }

    fn write(self, device: &Device, value: u64) -> Result<(), DeviceFault> {
        self.still_there(device, true)?;
        let (address, _) = self.address();
        // SAFETY: as above.
        unsafe {
            match self {
                Self::Narrow(_) => (*(address as *const AtomicU32)).store(value as u32, Ordering::Release),
                Self::Wide(_) => (*(address as *const AtomicU64)).store(value, Ordering::Release),
            }
        }
        Ok(())
    }

    fn still_there(self, device: &Device, writes: bool) -> Result<(), DeviceFault> {
        check(&device.memory, self, writes).map_err(|bad| {
            let report =
                format!("the word of a stream operation was freed before the stream reached the operation: {bad}");
            DeviceFault::new(Status::IllegalAddress, report)
        })
    }

    fn holds(self, condition: u32, value: u64, wanted: u64) -> bool {
        let value_minus_wanted_is_negative = match self {
            Self::Narrow(_) => (value as u32).wrapping_sub(wanted as u32).cast_signed() < 0,
            Self::Wide(_) => value.wrapping_sub(wanted).cast_signed() < 0,
        };
        let all = if matches!(self, Self::Narrow(_)) { u64::from(u32::MAX) } else { u64::MAX };
        match condition {
            AT_LEAST => !value_minus_wanted_is_negative,
            EQUAL => value == wanted & all,
            AND => value & wanted != 0,
            _ => !(value | wanted) & all != 0,
        }
    }
}

fn check(memory: &Memory, word: Word, writes: bool) -> Result<(), BadAddress> {
    let (address, bytes) = word.address();
    if writes { memory.check_writable(address, bytes) } else { memory.check(address, bytes) }
}

/// Writes a word when the stream reaches this point.
pub fn write(stream: Handle, word: Word, value: u64, flags: u32) -> Answer {
    if flags & !NO_BARRIER != 0 {
        return Err(Status::InvalidValue);
    }
    let (context, stream) = stream::find(stream)?;
    refuse_capture(&stream)?;
    let device = word.check(&context, true)?;
    let work = Box::new(move || word.write(device, value));
    context.enqueue(&stream, Job { after: Vec::new(), brief: true, work }).map(drop)
}

/// Holds up the stream until a word fulfils a condition or the context ends.
pub fn wait(stream: Handle, word: Word, value: u64, flags: u32) -> Answer {
    let condition = flags & !FLUSH;
    if condition > NOR {
        return Err(Status::InvalidValue);
    }
    let (context, stream) = stream::find(stream)?;
    refuse_capture(&stream)?;
    let device = word.check(&context, false)?;
    let runner = std::sync::Arc::clone(&context);
    let work = Box::new(move || {
        while !word.holds(condition, word.read(device)?, value) && !runner.cancel.load(Ordering::Relaxed) {
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    });
    context.enqueue(&stream, Job { after: Vec::new(), brief: false, work }).map(drop)
}

/// Refuses capture, because graphs have no nodes for these operations here.
fn refuse_capture(stream: &stream::object::Stream) -> Answer {
    match capture::of(stream)? {
        None => Ok(()),
        Some(taken) => Err(taken.spoil(Status::StreamCaptureUnsupported)),
    }
}

#[cfg(test)]
mod tests {
    use super::{AND, AT_LEAST, EQUAL, NOR, Word};

    #[test]
    fn conditions_are_those_of_the_headers() {
        let (narrow, wide) = (Word::Narrow(0), Word::Wide(0));
        // (int32_t)(*addr - value) >= 0
        assert!(narrow.holds(AT_LEAST, 5, 5) && narrow.holds(AT_LEAST, 1, u64::from(u32::MAX)));
        assert!(!narrow.holds(AT_LEAST, 4, 5) && !wide.holds(AT_LEAST, 1, u64::from(u32::MAX)));
        assert!(wide.holds(EQUAL, 7, 7) && !wide.holds(EQUAL, 7, 8));
        assert!(narrow.holds(AND, 6, 2) && !narrow.holds(AND, 6, 1));
        // ~(*addr | value) != 0
        assert!(narrow.holds(NOR, 0, 1) && !narrow.holds(NOR, u64::from(u32::MAX), 0));
    }
}
