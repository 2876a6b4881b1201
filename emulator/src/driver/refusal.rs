//! Reasons why kernels were not launched; the driver API has no text for them.

use std::cell::RefCell;

use super::status::Status;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Stores the reason for [`last`], and prints it, because most programs never ask for it.
pub fn tell(report: String) -> Status {
    eprintln!("gpufleet emulator: {report}");
    LAST.set(report);
    Status::NotSupported
}

/// Returns the reason for the calling thread's last refusal, until [`clear`].
pub fn last() -> String {
    LAST.with_borrow(Clone::clone)
}

pub fn clear() {
    LAST.take();
}
