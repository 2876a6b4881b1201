//! Functions of the program that the driver calls: they run on a thread of their own, in order.

use std::{
    ffi::c_void,
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
    thread,
};

use gpufleet_remote::codec::{Malformed, Reader};
use gpufleet_surface::callback::{Callback, HostFunction};

use crate::{link::without_signals, session};

/// A call of a function.
struct Call {
    id: u64,
    function: usize,
    data: usize,
    /// The stream and the status, for callbacks of streams.
    result: Option<(usize, i32)>,
}

/// Takes a call from the session.
pub(crate) fn take(body: &[u8]) {
    static CALLS: OnceLock<Sender<Call>> = OnceLock::new();
    let Ok(call) = parse(body) else { return };
    let calls = CALLS.get_or_init(|| {
        let (sender, calls) = channel::<Call>();
        let thread = thread::Builder::new().name("gpufleet-callbacks".into());
        let started = without_signals(|| {
            thread.spawn(move || {
                for call in calls {
                    run(&call);
                    if let Ok(link) = session::link() {
                        link.returned(call.id);
                    }
                }
            })
        });
        drop(started);
        sender
    });
    // Without the thread the function can't run; the session waits until the program ends.
    let _ = calls.send(call);
}

fn parse(body: &[u8]) -> Result<Call, Malformed> {
    let mut reader = Reader::new(body);
    let (id, function, data) = (reader.u64()?, reader.u64()? as usize, reader.u64()? as usize);
    let result = if reader.flag()? { Some((reader.u64()? as usize, reader.i32()?)) } else { None };
    reader.end()?;
    Ok(Call { id, function, data, result })
}

fn run(call: &Call) {
    let data: *mut c_void = std::ptr::with_exposed_provenance_mut(call.data);
    // SAFETY: the number is that of a function which the program gave to a call, with its data; the kind of call says
    // which type the function has.
    unsafe {
        match call.result {
            None => {
                if let Some(function) = std::mem::transmute::<usize, Option<HostFunction>>(call.function) {
                    function(data);
                }
            }
            Some((stream, status)) => {
                if let Some(function) = std::mem::transmute::<usize, Option<Callback>>(call.function) {
                    function(stream, status, data);
                }
            }
        }
    }
}
