//! Stream capture: the calls that it forbids.

use crate::status::{Answer, Status};

/// Which threads' calls are refused during a capture, if they could disturb it (`CUstreamCaptureMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Calls of every thread.
    Global,
    /// Calls of the thread that began the capture.
    ThreadLocal,
    /// No calls.
    Relaxed,
}

impl Mode {
    pub fn from_number(number: u32) -> Answer<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed].get(number as usize).copied().ok_or(Status::InvalidValue)
    }

    pub fn number(self) -> u32 {
        self as u32
    }

    /// Reports whether a capture in this mode forbids a call of a thread, whose own mode may permit more calls. The
    /// capture `is_own` if that thread began it.
    pub fn forbids(self, thread: Self, is_own: bool) -> bool {
        match (self, thread) {
            (Self::Relaxed, _) | (_, Self::Relaxed) => false,
            modes => is_own || modes == (Self::Global, Self::Global),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::{Global, Relaxed, ThreadLocal};

    #[test]
    fn a_global_capture_forbids_calls_of_other_threads_unless_they_permit_them() {
        assert!(Global.forbids(Global, false) && Global.forbids(ThreadLocal, true));
        assert!(!Global.forbids(ThreadLocal, false) && !Global.forbids(Relaxed, true));
        assert!(ThreadLocal.forbids(Global, true) && !ThreadLocal.forbids(Global, false));
        assert!(!Relaxed.forbids(Global, true));
    }
}
