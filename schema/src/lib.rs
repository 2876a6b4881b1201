//! The wire contract of gpufleet: the messages between producers, workers and the ledger.
//!
//! Everything here is data and its checks, without I/O. A reader decodes bytes with [`encoding`] and checks a decoded
//! [`Task`] with [`Task::check`] before it uses the task.

pub mod affinity;
pub mod blob;
pub mod bounds;
pub mod bytes;
pub mod check;
pub mod device_class;
pub mod dtype;
pub mod encoding;
pub mod event;
pub mod excerpt;
pub mod explanation;
pub mod host_program;
pub mod host_program_info;
pub mod id;
#[cfg(feature = "json-schema")]
pub mod json_schema;
pub mod kept;
pub mod launch;
pub mod limits;
pub mod number;
pub mod numbers;
pub mod order;
pub mod output;
pub mod printf;
pub mod programs_seen;
pub mod progress;
pub mod reply;
pub mod session;
pub mod sessions_seen;
pub mod signature;
pub mod size;
pub mod state;
pub mod task;
pub mod text;
pub mod topology;
pub mod trace;
mod version;
pub mod word;

pub use affinity::AffinitySlot;
pub use blob::{BlobDigest, BlobHasher};
pub use bytes::Inline;
pub use check::Invalid;
pub use device_class::{Announcement, ClassKey, DeviceClass};
pub use dtype::Dtype;
pub use encoding::{DecodeError, Encoding, Events, OneOrMany, UnreadableEvent};
pub use event::{
    Action, AttemptFinished, DeviceSeen, Event, JobInfo, LaterEvent, PoolUse, SessionProgress, Started, Submitted,
    UtilizationBy, WorkerSeen,
};
pub use excerpt::Excerpt;
pub use explanation::Explanation;
pub use host_program::HostProgram;
pub use host_program_info::HostProgramInfo;
pub use id::{ActionId, ClientName, JobId, MessageId, PoolName, WorkerName};
pub use kept::{KeptData, KeptOutput, KeptOutputs};
pub use launch::{Arg, Block, Grid, Launch};
pub use limits::{Limits, Requires};
pub use number::Number;
pub use numbers::Numbers;
pub use order::{Command, InvalidOrder, Order, Selection};
pub use output::{Output, OutputData};
pub use printf::PrintfOutput;
pub use programs_seen::{DeviceProgram, PoolPrograms, ProgramsSeen};
pub use progress::{Count, Printed, Progress, Stage};
pub use reply::{Failure, FailureCode, RanOn, Reply, Timings, Verdict};
pub use session::{SessionOffer, SessionUse};
pub use sessions_seen::{DeviceSessions, PoolSessions, SessionsSeen};
pub use signature::{PublicKey, Signature, SigningKey};
pub use size::{Size, TooLarge};
pub use state::{AttemptState, JobState};
pub use task::{Buffer, Data, LargeOutputs, OutputOf, Program, Task};
pub use topology::Priority;
pub use trace::{InvalidTraceContext, TraceContext};
pub use version::VERSION;
pub use word::LaterWord;
