//! The threads that a supervisor runs on.
//!
//! Its tasks are many and short, and hand each other the word: threads that steal them from each other spend more on waking one another
//! than on the tasks, and take the cores on which kernels' processes wait to run. So there are few threads, and what goes through many bytes
//! leaves them for as long as it takes.

use std::{io, thread};

use tokio::{
    runtime::{Builder, Handle, Runtime, RuntimeFlavor},
    task::block_in_place,
};

/// Cores of a machine to each thread. One thread serves more tiny jobs a second than a queue of the broker carries.
const CORES_PER_THREAD: usize = 8;
/// Tokio's own, for whoever knows better.
const THREADS_VARIABLE: &str = "TOKIO_WORKER_THREADS";
/// About a tenth of a millisecond's work: handing a thread's tasks to another one takes a tenth of that.
const BULK_BYTES: usize = 256 << 10;

/// A runtime for a supervisor on this machine.
pub fn start() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        builder.worker_threads(cores.div_ceil(CORES_PER_THREAD));
    }
    builder.enable_all().build()
}

/// Does what goes through so many bytes; if they are many, another thread takes over this one's tasks meanwhile.
pub(crate) fn through<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let can_hand_over = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes < BULK_BYTES || !can_hand_over() { work() } else { block_in_place(work) }
}
