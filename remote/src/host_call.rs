//! Functions of the program that a driver calls: the driver gets a function of the session, which asks the program.

use std::{
    ffi::c_void,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gpufleet_surface::kinds::Stream;

/// What a stream's callback gets beside its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamResult {
    /// The driver's handle.
    pub stream: u64,
    pub status: i32,
}

/// Lets the program run a function of its own, and waits until it has returned.
pub trait Caller: Debug + Send + Sync {
    fn call(&self, function: u64, data: u64, result: Option<StreamResult>);
}

/// A function of the program with its data, both as the program's addresses.
#[derive(Debug)]
pub struct HostCall {
    pub function: AtomicU64,
    pub data: AtomicU64,
    /// The driver calls it only once, so it is freed then.
    pub is_once: AtomicBool,
    pub caller: Arc<dyn Caller>,
}

impl HostCall {
    pub fn new(caller: &Arc<dyn Caller>) -> Arc<Self> {
        let (function, data, is_once) = Default::default();
        Arc::new(Self { function, data, is_once, caller: Arc::clone(caller) })
    }

    /// Returns what the driver gets as data.
    pub fn into_data(self: Arc<Self>) -> *mut c_void {
        Arc::into_raw(self).cast_mut().cast()
    }

    fn run(self: Arc<Self>, result: Option<StreamResult>) {
        let (function, data) = (self.function.load(Ordering::Acquire), self.data.load(Ordering::Acquire));
        self.caller.call(function, data, result);
        if !self.is_once.load(Ordering::Acquire) {
            // It belongs to a graph, which may call it again.
            let _ = Arc::into_raw(self);
        }
    }
}

/// `CUhostFn` for the driver.
///
/// # Safety
/// The data is from [`HostCall::into_data`], and not of a call that was made once and only once.
pub unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the driver passes on the data of this call, which was not freed before.
    unsafe { Arc::from_raw(data.cast_const().cast::<HostCall>()) }.run(None);
}

/// `CUstreamCallback` for the driver.
///
/// # Safety
/// As for [`run`].
pub unsafe extern "C" fn run_callback(stream: Stream, status: i32, data: *mut c_void) {
    let result = StreamResult { stream: stream as u64, status };
    // SAFETY: as above.
    unsafe { Arc::from_raw(data.cast_const().cast::<HostCall>()) }.run(Some(result));
}
