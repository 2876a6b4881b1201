//! A task: everything that a worker needs to run one job.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};

use crate::{
    BlobDigest, ClientName, Dtype, HostProgram, Inline, JobId, Launch, Limits, Number, Requires, Signature,
    TraceContext,
    bounds::{
        ARGS_MAX, BUFFERS_MAX, CLUSTER_CAPABILITY, COMPILE_OPTIONS_MAX, DIMENSIONS_MAX, LABELS_MAX, LAUNCHES_MAX,
    },
    encoding::bounded,
    host_program,
    launch::is_symbol,
    session,
};

/// One job as a producer describes it. It is a pure function of its contents: running it twice is harmless.
///
/// For a catalog program the kernel's manifest supplies launches, outputs and missing buffers; `arguments` carries its scalars by name. For
/// every other program, `launches` and `outputs` are complete, and `arguments` is empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Task<'a> {
    #[cfg_attr(feature = "json-schema", schemars(extend("const" = crate::VERSION)))]
    pub version: u32,
    pub job_id: JobId,
    /// A name for people, shown in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels to find the job by.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded::map::<_, _, LABELS_MAX>"
    )]
    #[cfg_attr(feature = "json-schema", schemars(extend("maxProperties" = LABELS_MAX)))]
    pub labels: BTreeMap<String, String>,
    #[serde(borrow)]
    pub program: Program<'a>,
    /// Signs the program, for pools that run only signed programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// A catalog kernel's scalars by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map::<_, _, ARGS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(extend("maxProperties" = ARGS_MAX)))]
    pub arguments: BTreeMap<String, Number>,
    #[serde(default, borrow, deserialize_with = "bounded::list::<_, _, BUFFERS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = BUFFERS_MAX)))]
    pub buffers: Vec<Buffer<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, LAUNCHES_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = LAUNCHES_MAX)))]
    /// Without buffers there may be no launch. The job then compiles the program and loads it into a device, and
    /// nothing runs.
    pub launches: Vec<Launch>,
    /// Names of the buffers that come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, BUFFERS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = BUFFERS_MAX)))]
    pub outputs: Vec<String>,
    #[serde(default, skip_serializing_if = "LargeOutputs::is_default")]
    pub large_outputs: LargeOutputs,
    /// For how long the outputs can be fetched after the job has succeeded, in milliseconds. The ledger keeps them, or
    /// names the blobs that have them ([`KeptOutputs`](crate::KeptOutputs)). Absent if only the reply has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_ms: Option<u64>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub requires: Requires,
    /// The client that gets the reply. Without it the reply goes to the message's `reply_to`; without both, no reply is
    /// sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ClientName>,
    /// When it was submitted, in milliseconds since 1970 by the producer's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_ms: Option<i64>,
    /// The span of the producer that is the parent of the job's spans, as W3C Trace Context writes it. It is here and not in
    /// a header, because a message may carry several jobs. Without it, the header `traceparent` of the message counts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "TraceContext::lenient")]
    pub traceparent: Option<TraceContext>,
}

/// The program to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Program<'a> {
    /// The name of a catalog kernel.
    Catalog(String),
    /// CUDA C, compiled by NVRTC on the worker.
    Source {
        #[serde(borrow)]
        code: Cow<'a, str>,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "bounded::list::<_, _, COMPILE_OPTIONS_MAX>"
        )]
        options: Vec<String>,
    },
    /// PTX as text.
    #[serde(borrow)]
    Ptx(Cow<'a, str>),
    /// A cubin, as base64 or MessagePack `bin`; a list of numbers is refused.
    #[serde(borrow)]
    Cubin(Inline<'a>),
    /// No kernel: a lease of device memory for a program on another machine, whose driver calls the worker makes. Such a task is published
    /// with the routing key [`session_key`](crate::topology::session_key). It declares its memory in `limits.memory_bytes_max`.
    Session {
        /// The program as people know it, such as `python train.py`.
        label: String,
        /// The session ends after this time without a call or a running kernel. If absent, the pool's default applies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_limit_ms: Option<u64>,
    },
    /// No kernel: a command that runs on the worker's machine with a whole device. Such a task is published with the routing key
    /// [`program_key`](crate::topology::program_key).
    Host(HostProgram),
}

/// A named array on the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Buffer<'a> {
    pub name: String,
    pub dtype: Dtype,
    /// Extents, slowest dimension first (C order).
    #[serde(deserialize_with = "bounded::list::<_, _, DIMENSIONS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = DIMENSIONS_MAX)))]
    pub shape: Vec<u64>,
    #[serde(default, borrow)]
    pub data: Data<'a>,
    /// The kernels only read this input. If it is a blob, the worker may give them the device memory that it keeps for all
    /// jobs of the pool that use the blob, instead of a copy. A job whose kernels write there fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub share: bool,
}

/// The initial contents of a buffer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Data<'a> {
    #[default]
    Zeros,
    Fill(Number),
    #[serde(borrow)]
    Inline(Inline<'a>),
    /// A blob of little-endian elements, as many as the shape says. The worker fetches it from the blob store.
    Blob(BlobDigest),
    /// A kept output of another job. Only the ledger knows where its bytes are, so the producer replaces it by a blob or
    /// by the bytes before it publishes the task, and a worker refuses it.
    Output(OutputOf),
}

/// An output of a job, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct OutputOf {
    pub job: JobId,
    pub name: String,
}

/// How outputs of at least 1 MiB ([`BLOB_BYTES_MIN`](crate::bounds::BLOB_BYTES_MIN)) are returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LargeOutputs {
    /// In the reply. The job fails if they do not fit.
    #[default]
    Inline,
    /// Through the blob store. The reply names the blobs.
    Blob,
}

impl LargeOutputs {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl<'a> Task<'a> {
    /// A task that runs `program`. All other fields have their defaults.
    pub fn new(program: Program<'a>) -> Self {
        Self {
            version: crate::VERSION,
            job_id: JobId::new(),
            name: None,
            labels: BTreeMap::new(),
            program,
            signature: None,
            arguments: BTreeMap::new(),
            buffers: Vec::new(),
            launches: Vec::new(),
            outputs: Vec::new(),
            large_outputs: LargeOutputs::default(),
            keep_ms: None,
            limits: Limits::default(),
            requires: Requires::default(),
            reply: None,
            submitted_ms: None,
            traceparent: None,
        }
    }

    /// The entries of CUDA C++ that are name expressions, such as `kernel<float>`: each once, in order.
    pub fn name_expressions(&self) -> Vec<String> {
        if !matches!(self.program, Program::Source { .. }) {
            return Vec::new();
        }
        let entries = self.launches.iter().map(|launch| launch.entry.as_str());
        let expressions: BTreeSet<&str> = entries.filter(|entry| !is_symbol(entry)).collect();
        expressions.into_iter().map(str::to_owned).collect()
    }

    /// Its largest input from the blob store.
    pub fn largest_blob(&self) -> Option<BlobDigest> {
        self.buffers.iter().filter_map(Buffer::blob).max_by_key(|(_, bytes)| *bytes).map(|(digest, _)| digest)
    }

    /// The requirements of the task together with those of its launches.
    pub fn needs(&self) -> Requires {
        let mut needs = self.requires.clone();
        if self.launches.iter().any(|launch| launch.cluster_blocks() > 1) {
            needs.compute_capability_min = needs.compute_capability_min.max(Some(CLUSTER_CAPABILITY));
        }
        needs
    }

    /// A copy that borrows the code and the contents of the buffers.
    pub fn borrowed(&self) -> Task<'_> {
        Task {
            program: self.program.borrowed(),
            buffers: self.buffers.iter().map(Buffer::borrowed).collect(),
            version: self.version,
            signature: self.signature.clone(),
            job_id: self.job_id,
            name: self.name.clone(),
            labels: self.labels.clone(),
            arguments: self.arguments.clone(),
            launches: self.launches.clone(),
            outputs: self.outputs.clone(),
            large_outputs: self.large_outputs,
            keep_ms: self.keep_ms,
            limits: self.limits.clone(),
            requires: self.requires.clone(),
            reply: self.reply.clone(),
            submitted_ms: self.submitted_ms,
            traceparent: self.traceparent,
        }
    }

    /// The task without borrows from the message that it was decoded from.
    pub fn into_owned(self) -> Task<'static> {
        Task {
            program: self.program.into_owned(),
            buffers: self.buffers.into_iter().map(Buffer::into_owned).collect(),
            version: self.version,
            signature: self.signature,
            job_id: self.job_id,
            name: self.name,
            labels: self.labels,
            arguments: self.arguments,
            launches: self.launches,
            outputs: self.outputs,
            large_outputs: self.large_outputs,
            keep_ms: self.keep_ms,
            limits: self.limits,
            requires: self.requires,
            reply: self.reply,
            submitted_ms: self.submitted_ms,
            traceparent: self.traceparent,
        }
    }
}

impl Program<'_> {
    /// `catalog`, `source`, `ptx`, `cubin`, `session` or `host`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Catalog(_) => "catalog",
            Self::Source { .. } => "source",
            Self::Ptx(_) => "ptx",
            Self::Cubin(_) => "cubin",
            Self::Session { .. } => session::KIND,
            Self::Host(_) => host_program::KIND,
        }
    }

    pub fn borrowed(&self) -> Program<'_> {
        match self {
            Self::Catalog(name) => Program::Catalog(name.clone()),
            Self::Source { code, options } => Program::Source { code: Cow::Borrowed(code), options: options.clone() },
            Self::Ptx(text) => Program::Ptx(Cow::Borrowed(text)),
            Self::Cubin(image) => Program::Cubin(image.borrowed()),
            Self::Session { label, idle_limit_ms } => {
                Program::Session { label: label.clone(), idle_limit_ms: *idle_limit_ms }
            }
            Self::Host(program) => Program::Host(program.clone()),
        }
    }

    pub fn into_owned(self) -> Program<'static> {
        match self {
            Self::Catalog(name) => Program::Catalog(name),
            Self::Source { code, options } => Program::Source { code: Cow::Owned(code.into_owned()), options },
            Self::Ptx(text) => Program::Ptx(Cow::Owned(text.into_owned())),
            Self::Cubin(image) => Program::Cubin(image.into_owned()),
            Self::Session { label, idle_limit_ms } => Program::Session { label, idle_limit_ms },
            Self::Host(program) => Program::Host(program),
        }
    }
}

impl Buffer<'static> {
    /// A buffer with the kept output of another job, which must have this dtype and shape.
    pub fn output_of(
        name: impl Into<String>,
        dtype: Dtype,
        shape: impl Into<Vec<u64>>,
        job: JobId,
        output: impl Into<String>,
    ) -> Self {
        Self::new(name, dtype, shape, Data::Output(OutputOf { job, name: output.into() }))
    }
}

impl<'a> Buffer<'a> {
    /// A buffer that the job does not share with others.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<u64>>, data: Data<'a>) -> Self {
        Self { name: name.into(), dtype, shape: shape.into(), data, share: false }
    }
}

impl Buffer<'_> {
    /// The number of elements; `None` if it overflows.
    pub fn elements(&self) -> Option<u64> {
        elements(&self.shape)
    }

    /// The number of bytes on the device; `None` if it overflows.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype.size() as u64)
    }

    /// The digest and the length of an input from the blob store.
    pub fn blob(&self) -> Option<(BlobDigest, u64)> {
        match self.data {
            Data::Blob(digest) => Some((digest, self.bytes()?)),
            Data::Zeros | Data::Fill(_) | Data::Inline(_) | Data::Output(_) => None,
        }
    }

    pub fn borrowed(&self) -> Buffer<'_> {
        let data = match &self.data {
            Data::Zeros => Data::Zeros,
            Data::Fill(number) => Data::Fill(*number),
            Data::Inline(inline) => Data::Inline(inline.borrowed()),
            Data::Blob(digest) => Data::Blob(*digest),
            Data::Output(source) => Data::Output(source.clone()),
        };
        Buffer { name: self.name.clone(), dtype: self.dtype, shape: self.shape.clone(), data, share: self.share }
    }

    pub fn into_owned(self) -> Buffer<'static> {
        let data = match self.data {
            Data::Zeros => Data::Zeros,
            Data::Fill(number) => Data::Fill(number),
            Data::Inline(inline) => Data::Inline(inline.into_owned()),
            Data::Blob(digest) => Data::Blob(digest),
            Data::Output(source) => Data::Output(source),
        };
        Buffer { name: self.name, dtype: self.dtype, shape: self.shape, data, share: self.share }
    }
}

/// The product of the extents; `None` if it overflows. A shape without dimensions has one element, as in NumPy.
pub fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent))
}
