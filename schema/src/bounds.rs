//! Every bound of a message, with its reason.

/// Maximum size of a message. RabbitMQ 4 refuses larger messages unless configured otherwise (3.x: 128 MiB). One bound for all keeps a
/// fleet portable.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum size of a message of events from a client. A client's batch has up to 256 KiB and one more event of up to 48 KiB. Workers report
/// outcomes with printed output and kept arrays, and may send more.
pub const CLIENT_EVENTS_BYTES_MAX: usize = 512 << 10;
/// Maximum number of jobs that one order names. A sender with more jobs gives several orders.
pub const ORDER_JOBS_MAX: usize = 1_000;
/// Maximum size of an order's message. The ids of its jobs take at most 39 KiB.
pub const ORDER_BYTES_MAX: usize = 64 << 10;
/// Minimum size of an array that travels through the blob store, if producer and worker have one. Smaller arrays are faster in a message.
pub const BLOB_BYTES_MIN: u64 = 1 << 20;
/// Maximum size of the arrays in a blob store that a program reads into memory at once, such as the outputs of one job. Workers and files
/// take arrays in pieces, so only the device and the store bound those.
pub const BLOBS_BYTES_MAX: u64 = 1 << 30;
/// Maximum size of the kept outputs of one job that the ledger itself holds. Together they are small enough for an event; larger outputs
/// are blobs.
pub const KEPT_INLINE_BYTES_MAX: u64 = 64 << 10;
/// Maximum time for which outputs are kept: a year.
pub const KEEP_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// Maximum length of a text that is echoed in an AMQP header. All headers must fit into one frame of 128 KiB, with everything else in it.
pub const HEADER_TEXT_BYTES_MAX: usize = 1024;
/// Maximum length of the names of pools, clients and workers. They are parts of queue names, which AMQP limits to 255 bytes.
pub const NAME_BYTES_MAX: usize = 100;
/// Maximum length of the names that people give to jobs, buffers, labels and arguments.
pub const TEXT_BYTES_MAX: usize = 256;
/// Maximum number of tasks in one message: enough to make a tiny job's share of a message negligible.
pub const TASKS_PER_MESSAGE_MAX: usize = 1024;
pub const LABELS_MAX: usize = 32;
pub const BUFFERS_MAX: usize = 256;
/// Maximum number of dimensions of a buffer. No kernel here needs more; NumPy's limit was 32 for a long time.
pub const DIMENSIONS_MAX: usize = 8;
pub const LAUNCHES_MAX: usize = 1024;
pub const REPEAT_MAX: u32 = 1_000_000;
/// Maximum number of arguments of a kernel. Before compute capability 7.0, CUDA passes at most 4 KiB of kernel parameters, which is 512 of
/// 8 bytes.
pub const ARGS_MAX: usize = 512;
/// Maximum size of all parameters of a kernel together: 32,764 bytes from compute capability 7.0 and CUDA 12.1 on, 4 KiB before.
pub const ARGUMENT_BYTES_MAX: u64 = 32_764;
/// The largest alignment of a parameter that CUDA's own headers ask for (`CUtensorMap`).
pub const ARGUMENT_ALIGN_MAX: u32 = 64;
/// Maximum size of a program: CUDA C++ source, PTX or cubin.
pub const PROGRAM_BYTES_MAX: usize = 8 << 20;
pub const COMPILE_OPTIONS_MAX: usize = 64;
/// Words of a host program's command.
pub const COMMAND_WORDS_MAX: usize = 4096;
/// Bytes of a host program's command, and of its environment variables. The kernel takes at most 128 KiB in one word.
pub const COMMAND_BYTES_MAX: usize = 128 << 10;
/// Environment variables of a host program.
pub const VARIABLES_MAX: usize = 256;
/// Bytes of a host program's command in the ledger, and in the events about its job. Longer ones are scripts, which travel as files.
pub const RECORDED_COMMAND_BYTES_MAX: usize = 4 << 10;
/// Bytes of the names of a host program's variables in the ledger, and in the events about its job.
pub const RECORDED_NAMES_BYTES_MAX: usize = 2 << 10;
/// Globs of the files that a host program brings back.
pub const DOWNLOADS_MAX: usize = 64;
/// Maximum length of a kernel's name. That of a template is long, both mangled and as a C++ name expression.
pub const ENTRY_BYTES_MAX: usize = 1024;
/// Maximum length of a failure's message, which is one line. It may quote a producer's text.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 2 << 10;
/// Maximum length of a failure's detail (a compile log, an access report) in replies and events.
pub const FAILURE_DETAIL_BYTES_MAX: usize = 64 << 10;
/// Maximum length of the lines of a program around the one that failed.
pub const EXCERPT_BYTES_MAX: usize = 4 << 10;
/// Maximum length of an attempt's printed output in replies and events: that of a failure's detail.
pub const PRINTF_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Maximum length of the printed text in a message of progress, which is a message per second for each running job.
pub const PROGRESS_TEXT_BYTES_MAX: usize = 6 << 10;
/// Maximum size of one buffer on the device. It is checked first, so that later products can't overflow.
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
/// Maximum dynamic shared memory that any device lets a block opt in to (227 KiB on compute capability 9.0).
pub const SHARED_BYTES_MAX: u32 = 227 << 10;
