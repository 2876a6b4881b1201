//! Checks a decoded task, and names the first invalid field.
//!
//! These checks need no device and no catalog: products do not overflow, names resolve, bounds hold. The worker checks
//! the limits of a device (memory, shared memory, compute capability).

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

use crate::{
    Arg, BlobDigest, Buffer, Data, Dtype, Output, OutputData, OutputOf, Program, Task,
    bounds::{
        ARGS_MAX, BUFFER_BYTES_MAX, BUFFERS_MAX, COMPILE_OPTIONS_MAX, DIMENSIONS_MAX, KEEP_MS_MAX, LABELS_MAX,
        LAUNCHES_MAX, PROGRAM_BYTES_MAX, TEXT_BYTES_MAX,
    },
    session::IDLE_LIMIT_MS_MIN,
    task::elements,
    text::recordable,
};

mod launch;

/// An invalid field, and why it is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    pub field: String,
    pub problem: String,
}

/// The name of a field, which is formatted only if the field is invalid.
type Field<'a> = fmt::Arguments<'a>;

pub(crate) fn invalid<T>(field: impl fmt::Display, problem: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { field: field.to_string(), problem: problem.into() })
}

impl Task<'_> {
    /// Checks everything that can be checked without a device. The first problem found is returned.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_texts()?;
        self.check_program()?;
        self.check_signature()?;
        self.check_buffers()?;
        self.check_launches()?;
        self.check_keep()?;
        self.check_outputs()
    }

    /// The decoded bytes of all buffer contents in this task.
    pub fn inline_bytes(&self) -> u64 {
        self.buffers.iter().map(Buffer::inline_bytes).sum()
    }

    /// The bytes of this task's inputs in the blob store, according to their shapes.
    pub fn blob_bytes(&self) -> u64 {
        self.buffers.iter().filter_map(Buffer::blob).map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
    }

    /// The blobs that this task takes as inputs.
    pub fn blobs(&self) -> BTreeSet<BlobDigest> {
        let digest = |buffer: &Buffer<'_>| if let Data::Blob(digest) = buffer.data { Some(digest) } else { None };
        self.buffers.iter().filter_map(digest).collect()
    }

    /// The bytes of all outputs, according to their shapes. Unknown buffers and sizes that overflow don't count.
    pub fn output_bytes(&self) -> u64 {
        let outputs = self.outputs.iter().filter_map(|name| self.buffer(name)?.bytes());
        outputs.fold(0, u64::saturating_add)
    }

    /// The bytes of all buffers and of the progress counter on the device; `None` if the sum overflows.
    pub fn device_bytes(&self) -> Option<u64> {
        let counter = self.progress_total().map_or(0, |_| 8);
        self.buffers.iter().try_fold(counter, |sum: u64, buffer| sum.checked_add(buffer.bytes()?))
    }

    /// The total of the progress counter, if a kernel has one.
    pub fn progress_total(&self) -> Option<u64> {
        self.progress_totals().next()
    }

    fn progress_totals(&self) -> impl Iterator<Item = u64> {
        let args = self.launches.iter().flat_map(|launch| &launch.args);
        args.filter_map(|arg| if let Arg::Progress(total) = arg { Some(*total) } else { None })
    }

    pub fn buffer(&self, name: &str) -> Option<&Buffer<'_>> {
        self.buffers.iter().find(|buffer| buffer.name == name)
    }

    fn check_texts(&self) -> Result<(), Invalid> {
        if let Some(name) = &self.name {
            check_text(format_args!("name"), name)?;
        }
        if self.labels.len() > LABELS_MAX {
            return invalid("labels", format!("too many labels; the maximum is {LABELS_MAX}"));
        }
        if let Some(device) = &self.requires.device {
            check_text(format_args!("requires.device"), device)?;
        }
        if self.arguments.len() > ARGS_MAX {
            return invalid("arguments", format!("too many arguments; the maximum is {ARGS_MAX}"));
        }
        for name in self.arguments.keys() {
            check_name(format_args!("arguments"), name)?;
        }
        for (key, value) in &self.labels {
            if key.is_empty() {
                return invalid("labels", "a label's key is empty");
            }
            check_text(format_args!("labels"), key)?;
            check_text(format_args!("labels.{key}"), value)?;
        }
        Ok(())
    }

    fn check_keep(&self) -> Result<(), Invalid> {
        match self.keep_ms {
            Some(0) => invalid("keep_ms", "0; leave it out to keep no outputs"),
            Some(ms) if ms > KEEP_MS_MAX => {
                invalid("keep_ms", format!("{ms}; the maximum is {KEEP_MS_MAX} (366 days)"))
            }
            _ => Ok(()),
        }
    }

    fn check_program(&self) -> Result<(), Invalid> {
        let (field, bytes) = match &self.program {
            Program::Catalog(name) => return check_name(format_args!("program.catalog"), name),
            Program::Source { code, options } => {
                if options.len() > COMPILE_OPTIONS_MAX {
                    return invalid(
                        "program.source.options",
                        format!("too many compiler options; the maximum is {COMPILE_OPTIONS_MAX}"),
                    );
                }
                for (index, option) in options.iter().enumerate() {
                    check_text(format_args!("program.source.options[{index}]"), option)?;
                }
                if code.contains('\0') {
                    return invalid("program.source.code", "contains a NUL character");
                }
                ("program.source.code", code.len())
            }
            Program::Ptx(text) => {
                if text.contains('\0') {
                    return invalid("program.ptx", "contains a NUL character");
                }
                ("program.ptx", text.len())
            }
            Program::Cubin(image) => ("program.cubin", image.resolved_len(Dtype::U8)),
            Program::Session { label, idle_limit_ms } => return self.check_session(label, *idle_limit_ms),
            Program::Host(program) => return program.check(self),
        };
        match bytes {
            0 => invalid(field, "empty"),
            1..=PROGRAM_BYTES_MAX => Ok(()),
            _ => invalid(field, format!("{bytes} bytes long; the maximum is {PROGRAM_BYTES_MAX}")),
        }
    }

    fn check_session(&self, label: &str, idle_limit_ms: Option<u64>) -> Result<(), Invalid> {
        check_text(format_args!("program.session.label"), label)?;
        if let Some(limit) = idle_limit_ms.filter(|limit| *limit < IDLE_LIMIT_MS_MIN) {
            let problem = format!("{limit}; the minimum is {IDLE_LIMIT_MS_MIN}, because workers look each second");
            return invalid("program.session.idle_limit_ms", problem);
        }
        if !self.buffers.is_empty() {
            return invalid("buffers", "a session takes no arrays; its program copies them itself");
        }
        if !self.launches.is_empty() {
            return invalid("launches", "a session launches nothing; its program does");
        }
        match self.limits.memory_bytes_max {
            None | Some(0) => invalid("limits.memory_bytes_max", "missing; a session declares its device memory"),
            Some(_) => Ok(()),
        }
    }

    fn check_signature(&self) -> Result<(), Invalid> {
        match &self.signature {
            Some(signature) if !signature.is_well_formed() => {
                invalid("signature", "key must be 32 bytes and value 64 bytes, both in base64")
            }
            _ => Ok(()),
        }
    }

    fn check_buffers(&self) -> Result<(), Invalid> {
        if self.buffers.len() > BUFFERS_MAX {
            return invalid("buffers", format!("too many buffers; the maximum is {BUFFERS_MAX}"));
        }
        let mut names = HashSet::new();
        for (index, buffer) in self.buffers.iter().enumerate() {
            check_name(format_args!("buffers[{index}].name"), &buffer.name)?;
            if !names.insert(buffer.name.as_str()) {
                return invalid(format!("buffers[{index}].name"), format!("two buffers are named {:?}", buffer.name));
            }
            buffer.check()?;
            self.check_share(buffer)?;
        }
        match self.device_bytes() {
            Some(0..=BUFFER_BYTES_MAX) => Ok(()),
            _ => invalid("buffers", format!("the buffers exceed {BUFFER_BYTES_MAX} bytes in total")),
        }
    }

    fn check_share(&self, buffer: &Buffer<'_>) -> Result<(), Invalid> {
        let field = || format!("buffers.{}.share", buffer.name);
        match buffer.data {
            _ if !buffer.share => Ok(()),
            Data::Zeros | Data::Fill(_) => {
                invalid(field(), "only an input can be shared; give the buffer data, or remove this")
            }
            Data::Inline(_) | Data::Blob(_) | Data::Output(_) if self.outputs.contains(&buffer.name) => {
                invalid(field(), "an output can't be shared, because the kernels write to it; remove this")
            }
            Data::Inline(_) | Data::Blob(_) | Data::Output(_) => Ok(()),
        }
    }

    fn check_launches(&self) -> Result<(), Invalid> {
        if matches!(self.program, Program::Catalog(_)) && self.launches.is_empty() {
            return Ok(());
        }
        if !self.arguments.is_empty() {
            return invalid("arguments", "only catalog kernels take named arguments; use launches[].args");
        }
        match self.launches.len() {
            0 if matches!(self.program, Program::Host(_)) => {}
            // Such a task compiles and loads its program.
            0 if self.buffers.is_empty() => {}
            0 => return invalid("launches", "empty; give at least one launch with the entry to run"),
            1..=LAUNCHES_MAX => {}
            _ => {
                return invalid("launches", format!("too many launches; the maximum is {LAUNCHES_MAX}"));
            }
        }
        for (index, launch) in self.launches.iter().enumerate() {
            launch::check_entry(format_args!("launches[{index}].entry"), &launch.entry, &self.program)?;
            let buffer = |name: &str| self.buffer(name).and_then(Buffer::elements);
            launch.check(format_args!("launches[{index}]"), buffer)?;
        }
        let mut totals = self.progress_totals();
        match totals.next().and_then(|first| Some((first, totals.find(|other| *other != first)?))) {
            Some((first, other)) => invalid(
                "launches",
                format!(
                    "progress totals {first} and {other}; a job has one counter, so give the same total everywhere"
                ),
            ),
            None => Ok(()),
        }
    }

    fn check_outputs(&self) -> Result<(), Invalid> {
        if self.outputs.len() > BUFFERS_MAX {
            return invalid("outputs", format!("too many outputs; the maximum is {BUFFERS_MAX}"));
        }
        let mut names = HashSet::new();
        for (index, name) in self.outputs.iter().enumerate() {
            let field = || format!("outputs[{index}]");
            check_name(format_args!("outputs[{index}]"), name)?;
            // The task need not list the output buffers of a catalog kernel.
            if self.buffer(name).is_none() && !matches!(self.program, Program::Catalog(_)) {
                return invalid(field(), format!("the task has no buffer named {name:?}"));
            }
            if !names.insert(name) {
                return invalid(field(), format!("{name:?} is listed twice"));
            }
        }
        Ok(())
    }
}

impl Buffer<'_> {
    pub fn inline_bytes(&self) -> u64 {
        match &self.data {
            Data::Inline(inline) => inline.resolved_len(self.dtype) as u64,
            Data::Zeros | Data::Fill(_) | Data::Blob(_) | Data::Output(_) => 0,
        }
    }

    /// Checks shape and contents against each other.
    pub fn check(&self) -> Result<(), Invalid> {
        let field = |part: &str| format!("buffers.{}.{part}", self.name);
        if self.shape.len() > DIMENSIONS_MAX {
            return invalid(field("shape"), format!("too many dimensions; the maximum is {DIMENSIONS_MAX}"));
        }
        let bytes = match self.bytes() {
            Some(bytes @ 1..=BUFFER_BYTES_MAX) => bytes,
            Some(0) => return invalid(field("shape"), format!("{:?} has no elements", self.shape)),
            _ => {
                return invalid(
                    field("shape"),
                    format!("{:?} of {} exceeds {BUFFER_BYTES_MAX} bytes", self.shape, self.dtype),
                );
            }
        };
        match &self.data {
            // The worker checks a blob's length, because only it can read the blob store.
            Data::Zeros | Data::Blob(_) => Ok(()),
            Data::Output(OutputOf { job, name }) => invalid(
                field("data.output"),
                format!(
                    "output {:?} of job {job} must be looked up in the ledger before the task is published, and workers do not do \
                     this; submit the task with `gpufleet submit --file` or a Rust client with a ledger, or name the blob that \
                     `gpufleet show {job}` shows",
                    recordable(name)
                ),
            ),
            Data::Fill(number) => number
                .write(self.dtype, &mut Vec::with_capacity(8))
                .or_else(|problem| invalid(field("data.fill"), problem.to_string())),
            Data::Inline(inline) => {
                let given = inline.resolved_len(self.dtype) as u64;
                if given != bytes {
                    return invalid(
                        field("data"),
                        format!("holds {given} bytes, but {:?} of {} needs {bytes}", self.shape, self.dtype),
                    );
                }
                inline.check(self.dtype).or_else(|problem| invalid(field("data"), problem.to_string()))
            }
        }
    }
}

impl Output<'_> {
    /// Checks that the number of bytes matches the shape.
    pub fn check(&self) -> Result<(), Invalid> {
        // The client checks a blob when it fetches the blob.
        let OutputData::Inline(data) = &self.data else { return Ok(()) };
        let given = data.resolved_len(self.dtype) as u64;
        match elements(&self.shape).and_then(|count| count.checked_mul(self.dtype.size() as u64)) {
            Some(wanted) if wanted == given => Ok(()),
            _ => invalid(
                format!("outputs.{}.data", self.name),
                format!("holds {given} bytes, which do not match {:?} of {}", self.shape, self.dtype),
            ),
        }
    }
}

pub(crate) fn check_text(field: Field<'_>, text: &str) -> Result<(), Invalid> {
    if text.len() > TEXT_BYTES_MAX {
        return invalid(field, format!("longer than {TEXT_BYTES_MAX} bytes"));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(control) => invalid(field, format!("contains the control character {control:?}")),
        None => Ok(()),
    }
}

fn check_name(field: Field<'_>, name: &str) -> Result<(), Invalid> {
    if name.is_empty() {
        return invalid(field, "empty");
    }
    check_text(field, name)
}
