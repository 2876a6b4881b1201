//! The runtime of tasks that outlive a scenario. The scenario's own runtime ends with the scenario.

use std::sync::LazyLock;

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// The runtime has one thread, because its tasks wait for the broker and the database most of the time.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime starts"));

pub(crate) fn spawn<F: Future<Output: Send> + Send + 'static>(task: F) -> JoinHandle<F::Output> {
    RUNTIME.spawn(task)
}
