//! Opens the emulator, and runs child processes for effects that a process can't undo.

use std::{
    env,
    path::PathBuf,
    process::{Command, Output},
    sync::{Arc, OnceLock},
};

use cudarc::driver::{CudaContext, DriverError, sys::cudaError_enum};
use libloading::Library;

/// Environment variable of a child process in which a test does its work.
const CHILD: &str = "GPUFLEET_TEST_CHILD_OF_EMULATOR";

/// Returns the library that Cargo built beside this test.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = library_path();
        // SAFETY: the library is this package's own; loading it runs no code.
        unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("failed to open {}: {error}", path.display()))
    })
}

/// Returns the first device's primary context, current on the calling thread. It exists as long as the process, so raw
/// handles are valid for a whole test.
pub fn context() -> Arc<CudaContext> {
    static CONTEXT: OnceLock<Arc<CudaContext>> = OnceLock::new();
    library();
    let context = CONTEXT.get_or_init(|| CudaContext::new(0).unwrap());
    context.bind_to_thread().unwrap();
    Arc::clone(context)
}

/// Makes a context of the first device for one test, current on the calling thread, without cudarc's own events.
pub fn separate_context() -> Arc<CudaContext> {
    library();
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    // SAFETY: each test waits for its streams itself.
    unsafe { context.disable_event_tracking() };
    context.bind_to_thread().unwrap();
    context
}

/// Returns the number of an error, which is more readable in a failed assertion than cudarc's enum.
pub fn code<T>(result: Result<T, DriverError>) -> i32 {
    result.map_or_else(|error| error.0, |_| cudaError_enum::CUDA_SUCCESS) as i32
}

/// Reports whether this process is a child that [`in_child`] started.
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs one test of this binary in a process of its own.
pub fn in_child(test: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Fails with the child's output if the child failed.
pub fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
}

fn library_path() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().join("libgpufleet_emulator.so")
}
