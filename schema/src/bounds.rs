//! Every bound of a message, with its reason.

/// RabbitMQ 4 refuses larger messages unless configured otherwise (3.x: 128 MiB). One bound for all keeps a fleet
/// portable.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// A message of events from a client. A client's batch has up to 256 KiB and one event more, which has up to 40 KiB. Workers
/// report outcomes with printed output and kept arrays, and may send more.
pub const CLIENT_EVENTS_BYTES_MAX: usize = 512 << 10;
/// The jobs that one order names. A sender with more gives several orders.
pub const ORDER_JOBS_MAX: usize = 1_000;
/// An order as a message. The ids of its jobs take 39 KiB at most.
pub const ORDER_BYTES_MAX: usize = 64 << 10;
/// Arrays from this size on travel through the blob store if producer and worker have one. Smaller ones are faster in a
/// message.
pub const BLOB_BYTES_MIN: u64 = 1 << 20;
/// The arrays in a blob store that a program reads into memory at once, such as the outputs of one job. Workers and files
/// take arrays in pieces, so only the device and the store bound these.
pub const BLOBS_BYTES_MAX: u64 = 1 << 30;
/// The kept outputs of one job that the ledger itself holds. Together they are small enough for an event; larger ones are
/// blobs.
pub const KEPT_INLINE_BYTES_MAX: u64 = 64 << 10;
/// A year.
pub const KEEP_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// AMQP headers must fit one frame of 128 KiB together with everything else in it; texts echoed there stay far below.
pub const HEADER_TEXT_BYTES_MAX: usize = 1024;
/// Names of pools, clients and workers: part of queue names, which AMQP limits to 255 bytes.
pub const NAME_BYTES_MAX: usize = 100;
/// Names that people give to jobs, buffers, labels and arguments.
pub const TEXT_BYTES_MAX: usize = 256;
/// Tasks in one message: enough to make a tiny job's share of a message negligible.
pub const TASKS_PER_MESSAGE_MAX: usize = 1024;
pub const LABELS_MAX: usize = 32;
pub const BUFFERS_MAX: usize = 256;
/// NumPy's limit was 32 for a long time. No kernel here needs more than 8.
pub const DIMENSIONS_MAX: usize = 8;
pub const LAUNCHES_MAX: usize = 1024;
pub const REPEAT_MAX: u32 = 1_000_000;
/// CUDA passes at most 4 KiB of kernel parameters before compute capability 7.0; 8-byte ones make 512.
pub const ARGS_MAX: usize = 512;
/// All parameters of a kernel together: 32,764 bytes from compute capability 7.0 and CUDA 12.1 on, 4 KiB before.
pub const ARGUMENT_BYTES_MAX: u64 = 32_764;
/// The largest alignment of a parameter that CUDA's own headers ask for (`CUtensorMap`).
pub const ARGUMENT_ALIGN_MAX: u32 = 64;
/// CUDA C source, PTX or cubin.
pub const PROGRAM_BYTES_MAX: usize = 8 << 20;
pub const COMPILE_OPTIONS_MAX: usize = 64;
/// A kernel's name: as a C++ name expression or mangled, a template's is long.
pub const ENTRY_BYTES_MAX: usize = 1024;
/// The one line of a failure. It may quote what a producer wrote.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 2 << 10;
/// The text of a failure (a compile log, an access report) as it travels in replies and events.
pub const FAILURE_DETAIL_BYTES_MAX: usize = 64 << 10;
/// The lines of a program around the one that failed.
pub const EXCERPT_BYTES_MAX: usize = 4 << 10;
/// The printed output of an attempt in replies and events: as much as a failure's text.
pub const PRINTF_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// One buffer on the device. Checked first, so that later products can't overflow.
pub const BUFFER_BYTES_MAX: u64 = 1 << 40;
pub const TIME_LIMIT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;
pub const ATTEMPTS_MAX: u32 = 20;
/// Deliveries of one message after which a worker treats it as poison. The broker dead-letters a message after 20 by
/// itself; a worker acts first, so that the job gets a reply.
pub const DELIVERIES_MAX: u64 = 15;

/// CUDA's launch bounds, the same for every device since compute capability 3.0.
pub const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
pub const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
pub const THREADS_PER_BLOCK_MAX: u32 = 1024;
/// The most blocks that any device runs as one cluster (compute capability 9.0; eight are portable).
pub const CLUSTER_BLOCKS_MAX: u64 = 16;
/// The first compute capability with clusters.
pub const CLUSTER_CAPABILITY: [u32; 2] = [9, 0];
/// The most that any device lets a block opt in to (227 KiB on compute capability 9.0).
pub const SHARED_BYTES_MAX: u32 = 227 << 10;
