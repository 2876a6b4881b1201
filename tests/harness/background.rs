//! The runtime of tasks that outlive a scenario, whose own runtime ends with it.

use std::sync::LazyLock;

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// One thread: recorders and deletions wait for the broker and the database most of the time.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime starts"));

pub(crate) fn spawn<F: Future<Output: Send> + Send + 'static>(task: F) -> JoinHandle<F::Output> {
    RUNTIME.spawn(task)
}
