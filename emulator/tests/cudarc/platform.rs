//! Opening the emulator, and child processes for what a process can't take back.

use std::{
    env,
    path::PathBuf,
    process::{Command, Output},
    sync::{Arc, OnceLock},
};

use cudarc::driver::{CudaContext, DriverError, sys::cudaError_enum};
use libloading::Library;

/// Set in a process that a test started to do its work there.
const CHILD: &str = "GPUFLEET_TEST_CHILD_OF_EMULATOR";

/// The library that Cargo built beside this test.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = library_path();
        // SAFETY: the library is this package's own; loading it runs no code.
        unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
    })
}

/// The first device's primary context, current on the calling thread. It lasts as long as the process, so that raw
/// handles are good for a whole test.
pub fn context() -> Arc<CudaContext> {
    static CONTEXT: OnceLock<Arc<CudaContext>> = OnceLock::new();
    library();
    let context = CONTEXT.get_or_init(|| CudaContext::new(0).unwrap());
    context.bind_to_thread().unwrap();
    Arc::clone(context)
}

/// A context of the first device for one test alone, current on the calling thread, without cudarc's own events.
pub fn separate_context() -> Arc<CudaContext> {
    library();
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    // SAFETY: each test waits for its streams itself.
    unsafe { context.disable_event_tracking() };
    context.bind_to_thread().unwrap();
    context
}

/// The number of an error, which reads better in a failed assertion than cudarc's enum.
pub fn code<T>(result: Result<T, DriverError>) -> i32 {
    result.map_or_else(|error| error.0, |_| cudaError_enum::CUDA_SUCCESS) as i32
}

/// Is this process a child that [`in_child`] started?
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs one test of this binary again in a process of its own.
pub fn in_child(test: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Fails with what the child wrote if it failed.
pub fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
}

fn library_path() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().join("libgpufleet_emulator.so")
}
