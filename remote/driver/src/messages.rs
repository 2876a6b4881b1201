//! Lines for the user, each once, on standard error.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write as _,
    sync::{Mutex, Once, PoisonError},
};

use crate::session::SOCKET;

/// `gpufleet run` finds this file beside the socket if the program needed something that sessions lack.
const LACKS: &str = ".lacks";

/// Writes a line, unless it was written before.
pub(crate) fn once(line: &str) {
    static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned()) {
        // A program without standard error has no other place for the line.
        let _ = writeln!(std::io::stderr(), "gpufleet: {line}");
    }
}

/// Writes that a call is not available, and returns the error that it answers.
pub(crate) fn refuse(symbol: &str) -> gpufleet_surface::status::Status {
    once(&match symbol {
        "cuGetExportTable" => "this program contains NVIDIA's CUDA runtime, which accepts only NVIDIA's own driver. \
            Sessions cannot run it."
            .to_owned(),
        "cuMemAllocManaged" => "managed memory needs the GPU in this machine; use cuMemAlloc and copies".to_owned(),
        "cuMemHostGetDevicePointer_v2" => "mapped host memory is not available in sessions".to_owned(),
        symbol => format!("{symbol} is not available in sessions"),
    });
    note_lack();
    gpufleet_surface::status::Status::NotSupported
}

/// Notes for `gpufleet run` that the program needed something that sessions lack, so that its exit code says so if the program fails.
fn note_lack() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        if let Some(mut path) = env::var_os(SOCKET) {
            path.push(LACKS);
            // Without the file, only the exit code is less telling.
            let _ = fs::File::create(path);
        }
    });
}
