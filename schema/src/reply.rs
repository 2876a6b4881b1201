//! A reply: the one final outcome of a job, with its outputs.

use serde::{Deserialize, Serialize};

use crate::{
    AttemptState, Excerpt, JobId, Output, PrintfOutput, SessionUse, WorkerName,
    bounds::{FAILURE_DETAIL_BYTES_MAX, FAILURE_MESSAGE_BYTES_MAX},
    word::words,
};

mod read;

/// The final outcome of one task. `state` is never `running` or `lost`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Reply<'a> {
    #[cfg_attr(feature = "json-schema", schemars(extend("const" = crate::VERSION)))]
    pub version: u32,
    /// Null if the worker could not read the task's id. Such a reply can be matched only by the message's
    /// `correlation_id`.
    pub job_id: Option<JobId>,
    pub attempt: u32,
    pub state: AttemptState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    #[serde(default, borrow)]
    pub outputs: Vec<Output<'a>>,
    #[serde(default)]
    pub timings: Timings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_on: Option<RanOn>,
    /// Output of the kernels' `printf`, or the end of what a host program wrote; absent if there is none. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printf_output: Option<PrintfOutput>,
    /// What a host program did, with its exit code. Absent for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<SessionUse>>,
}

/// Why a job did not succeed. A reader adds the fields that it does not know to the detail, so that a person sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Failure {
    pub verdict: Verdict,
    pub code: FailureCode,
    /// One line for a person.
    pub message: String,
    /// A compile log or an access report, cut to [`FAILURE_DETAIL_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The line of the submitted source or PTX that caused the failure, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// That line with its neighbours. Old workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Excerpt>,
}

words! {
    /// The party that is responsible for a failure.
    Verdict {
        User = "user",
        Timeout = "timeout",
        OutOfMemory = "out_of_memory",
        Device = "device",
        Infrastructure = "infrastructure",
    }
}

words! {
    /// The kind of a failure, for programs to match on.
    FailureCode {
        MalformedTask = "malformed_task",
        UnsupportedVersion = "unsupported_version",
        InvalidTask = "invalid_task",
        UnknownKernel = "unknown_kernel",
        RequirementsNotMet = "requirements_not_met",
        /// The pool does not run programs of this kind, or not without a trusted signature.
        Policy = "policy",
        CompileError = "compile_error",
        LoadError = "load_error",
        LaunchError = "launch_error",
        KernelFault = "kernel_fault",
        /// The program keeps killing executors and is refused for a while.
        Quarantined = "quarantined",
        TimeLimit = "time_limit",
        QueueLimit = "queue_limit",
        OutOfMemory = "out_of_memory",
        OutputTooLarge = "output_too_large",
        /// The blob store does not have what the task names, or something else under its name.
        BlobMissing = "blob_missing",
        /// The blob store can't be used from the worker, or no worker has one.
        BlobUnavailable = "blob_unavailable",
        ExecutorLost = "executor_lost",
        AttemptsExhausted = "attempts_exhausted",
        DeviceLost = "device_lost",
        Cancelled = "cancelled",
        /// The program of a session, or a host program, exited with a code other than 0.
        ProgramFailed = "program_failed",
        /// The command that opened the session has gone, or never connected.
        ClientLost = "client_lost",
        /// The session made no calls for longer than its idle limit.
        IdleLimit = "idle_limit",
        Internal = "internal",
    }
}

/// The worker and the device that ran an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RanOn {
    pub worker: WorkerName,
    pub device: u32,
    pub device_name: String,
    /// The CUDA driver was the emulator, not a GPU's.
    pub emulated: bool,
}

/// How long each step of an attempt took, in microseconds. Everything but `queue_us` is from one monotonic clock of the
/// worker or from device events; `queue_us` compares the producer's clock with the worker's and is never negative.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Timings {
    /// From submission to the worker's receipt.
    pub queue_us: u64,
    /// From the worker's receipt to the executor's start on it, without the compilation and the fetching of blobs.
    pub wait_us: u64,
    /// Bringing inputs from the blob store to the device.
    pub fetch_us: u64,
    pub compile_us: u64,
    /// Loading the module into the device.
    pub load_us: u64,
    pub copy_in_us: u64,
    /// One entry for each launch of the task, its repeats together.
    pub launches_us: Vec<u64>,
    pub copy_out_us: u64,
    /// From the executor's start on the job to its end.
    pub total_us: u64,
    pub device_bytes_peak: u64,
    /// The program was compiled or loaded before.
    pub module_cached: bool,
}

impl Timings {
    pub fn kernel_us(&self) -> u64 {
        self.launches_us.iter().sum()
    }
}

impl Failure {
    pub fn new(verdict: Verdict, code: FailureCode, message: impl Into<String>) -> Self {
        let message = cut(message.into(), FAILURE_MESSAGE_BYTES_MAX);
        Self { verdict, code, message, detail: None, line: None, source: None }
    }

    /// Adds a longer text, cut at the bound so that a reply stays small whatever a compiler prints.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        let detail = cut(detail.into(), FAILURE_DETAIL_BYTES_MAX);
        self.detail = Some(detail).filter(|text| !text.is_empty());
        self
    }

    #[must_use]
    pub fn at_line(mut self, line: Option<u32>) -> Self {
        self.line = line;
        self
    }

    /// Adds the lines of the program around the failure's line.
    #[must_use]
    pub fn in_program(mut self, program: &str) -> Self {
        self.source = self.line.and_then(|line| Excerpt::around(program, line));
        self
    }

    /// The bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        let detail = self.detail.as_ref().map_or(0, String::len);
        self.message.len() + detail + self.source.as_ref().map_or(0, |source| source.text.len())
    }
}

/// Cuts a text to this many bytes, and marks the cut.
fn cut(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = "\n… (cut)";
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - MARK.len()));
        text.push_str(MARK);
    }
    text
}

impl Verdict {
    /// The meaning of the verdict, for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::User => "The job itself is at fault, or it was cancelled. It would fail again.",
            Self::Timeout => "The job reached a time limit.",
            Self::OutOfMemory => "The job needs more device memory than it may have.",
            Self::Device => "A device failed. Reserved: this release reports `infrastructure` instead.",
            Self::Infrastructure => {
                "The fleet is at fault: worker, executor, device or blob store. The job may succeed later."
            }
            Self::Later(_) => "A later release has added this verdict.",
        }
    }
}

impl Reply<'_> {
    pub fn into_owned(self) -> Reply<'static> {
        Reply {
            outputs: self.outputs.into_iter().map(Output::into_owned).collect(),
            version: self.version,
            job_id: self.job_id,
            attempt: self.attempt,
            state: self.state,
            failure: self.failure,
            timings: self.timings,
            ran_on: self.ran_on,
            printf_output: self.printf_output,
            session: self.session,
        }
    }
}
