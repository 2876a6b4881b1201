//! Turns a command line or a task file into a job and the files for its outputs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use gpufleet::{
    InvalidJob, Job,
    schema::{
        Arg, BlobDigest, Buffer, Data, PoolName, Program, Task, TooLarge,
        bounds::{BLOB_BYTES_MIN, MESSAGE_BYTES_MAX},
    },
};

use gpufleet_kernels::{Problem, ResolveError};

use super::{Options, chained::ChainedInputs, entry::Entry, keeping::Keeping, task_file};
use crate::{
    complaint::Complaint,
    files::{self, Input, Purpose},
    kernels, keygen,
    spec::FileSpec,
};

/// A job that was read and checked, and not sent yet.
#[derive(Debug)]
pub struct Plan {
    pub job: Job,
    pub pool: PoolName,
    /// The file of each output, by its name.
    pub saves: BTreeMap<String, PathBuf>,
    pub source: Option<SourceText>,
    /// Whether large arrays go through a blob store, or else in messages.
    pub has_store: bool,
    /// What becomes of the outputs when the command does not wait for them.
    pub keeping: Keeping,
}

/// The submitted program, so that errors can show its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    pub path: PathBuf,
    pub text: String,
}

impl Plan {
    /// Reads a job. `chained` has the inputs that come from other jobs.
    pub fn read(options: &Options, has_store: bool, chained: &ChainedInputs) -> Result<Self, Complaint> {
        check_names(options)?;
        let inputs = Purpose::input(has_store);
        let mut plan = match &options.file {
            Some(file) => task_file::read(file, inputs)?,
            None => of_line(options, inputs, chained)?,
        };
        if matches!(plan.job.program(), Program::Session { .. }) {
            return Err(Complaint::bad_input("a session can't be submitted, because its program runs on your machine")
                .hint("start the program with gpufleet run --memory SIZE -- COMMAND"));
        }
        plan.has_store = has_store;
        plan.take_job_options(options);
        if let Some(path) = &options.sign_key {
            plan.job = plan.job.signed_by(&keygen::read(path)?);
        }
        for out in &options.out {
            if plan.saves.insert(out.name.clone(), out.path.clone()).is_some() {
                return Err(Complaint::usage(format!("--out names output {} twice", out.name))
                    .hint("keep one of the two files"));
            }
        }
        plan.return_what_is_saved();
        Ok(plan)
    }

    /// Checks the job, and decides what becomes of its outputs.
    pub fn checked(mut self, options: &Options) -> Result<Self, Complaint> {
        let task = self.check(options)?;
        self.keeping = Keeping::of(options, &task, self.has_store);
        self.job = self.job.keep(self.keeping.time());
        Ok(self)
    }

    /// Requests every output that is saved to a file, even if a task file does not list it as an output.
    fn return_what_is_saved(&mut self) {
        let returns_all = matches!(self.job.program(), Program::Catalog(_)) && self.job.outputs().is_empty();
        if !returns_all {
            let missing = self.saves.keys().filter(|name| !self.job.outputs().contains(name));
            self.job = missing.fold(self.job.clone(), Job::output);
        }
    }

    /// Options of the command line override those of a task file.
    fn take_job_options(&mut self, options: &Options) {
        if let Some(pool) = &options.job.pool {
            self.pool = pool.clone();
        }
        let mut job = options.job.describe(self.job.clone()).pool(self.pool.clone());
        if let Some(priority) = options.priority {
            job = job.priority(priority);
        }
        if let Some(limit) = options.time_limit {
            job = job.time_limit(limit);
        }
        if let Some(limit) = options.queue_limit {
            job = job.queue_limit(limit);
        }
        if let Some(attempts) = options.attempts {
            job = job.attempts_max(attempts);
        }
        if let Some(id) = options.id {
            job = job.with_id(id);
        }
        self.job = job;
    }

    /// Checks everything that can be checked before the job is sent.
    fn check(&self, options: &Options) -> Result<Task<'static>, Complaint> {
        let invalid = |problem| invalid(&problem, self.job.program());
        let mut checked = self.job.clone().build().map_err(invalid)?;
        if self.has_store {
            name_large(&mut checked.task);
            checked.task.check().map_err(|problem| invalid(problem.into()))?;
        }
        let bytes = checked.task.inline_bytes();
        if bytes > MESSAGE_BYTES_MAX as u64 {
            return Err(too_large(&TooLarge::task(&checked.task, bytes), self.has_store));
        }
        // The outputs of a catalog kernel get their shapes from its inputs.
        let resolved = match &checked.task.program {
            Program::Catalog(_) => {
                Some(gpufleet_kernels::resolve(checked.task.borrowed()).map_err(|problem| invalid(problem.into()))?)
            }
            _ => None,
        };
        for (name, path) in &self.saves {
            files::check_writable(path)?;
            match resolved.as_ref().unwrap_or(&checked.task).buffer(name) {
                Some(buffer) => files::check_holds(path, buffer.dtype, &buffer.shape)?,
                None => return Err(no_such_output(name, options)),
            }
        }
        drop(resolved);
        Ok(checked.task)
    }
}

/// Makes the task as large as it will be once its large arrays are in the store. All digests have the same length.
fn name_large(task: &mut Task<'_>) {
    for buffer in task.buffers.iter_mut().filter(|buffer| buffer.inline_bytes() >= BLOB_BYTES_MIN) {
        buffer.data = Data::Blob(BlobDigest::of(&[]));
    }
}

fn no_such_output(name: &str, options: &Options) -> Complaint {
    let complaint = Complaint::bad_input(format!("the job has no buffer {name:?} to write"));
    match options.kernel.as_deref().and_then(|kernel| kernels::find(kernel).ok()) {
        Some(kernel) => complaint.hint(format!("the kernel is {}", kernel.signature())),
        None => complaint.hint(format!("create the buffer: --zeros {name}=f32[1024], or --out {name}=FILE:f32[1024]")),
    }
}

fn check_names(options: &Options) -> Result<(), Complaint> {
    let files = options.input.iter().chain(&options.inout).map(|file| &file.name);
    let made = options.zeros.iter().map(|zeros| &zeros.name).chain(options.fill.iter().map(|fill| &fill.name));
    let made_by_out = options.out.iter().filter(|out| out.form.is_some()).map(|out| &out.name);
    let buffers = files.chain(made).chain(made_by_out).map(|name| ("buffer", name));
    let scalars = options.arg.iter().map(|scalar| ("scalar", &scalar.name));
    let labels = options.job.label.iter().map(|label| ("label", &label.key));
    given_once(buffers.chain(scalars).chain(labels))
}

/// Rejects two contents or values for one thing, because either could be meant.
pub fn given_once<'a>(mut items: impl Iterator<Item = (&'static str, &'a String)>) -> Result<(), Complaint> {
    let mut seen = BTreeSet::new();
    match items.find(|item| !seen.insert(*item)) {
        Some((what, name)) => Err(Complaint::usage(format!("{what} {name} is given twice")).hint("keep one of them")),
        None => Ok(()),
    }
}

fn of_line(options: &Options, inputs: Purpose, chained: &ChainedInputs) -> Result<Plan, Complaint> {
    let (job, source) = program(options)?;
    let job = launch(job, options, source.as_ref())?;
    let job = buffers(job, options, inputs, chained)?;
    let job = returned(options).into_iter().fold(job, Job::output);
    Ok(Plan {
        job,
        pool: PoolName::default(),
        saves: BTreeMap::new(),
        source,
        has_store: false,
        keeping: Keeping::default(),
    })
}

fn program(options: &Options) -> Result<(Job, Option<SourceText>), Complaint> {
    let read = |path: &Path| {
        let text = files::read_text(path, Purpose::Program)?;
        Ok::<_, Complaint>(SourceText { path: path.to_owned(), text })
    };
    if let Some(path) = &options.source {
        let source = read(path)?;
        let job = options.compile_option.iter().fold(Job::source(&source.text), Job::compile_option);
        return Ok((job, Some(source)));
    }
    if let Some(path) = &options.ptx {
        let source = read(path)?;
        return Ok((Job::ptx(&source.text), Some(source)));
    }
    if let Some(path) = &options.cubin {
        return Ok((Job::cubin(files::read_cubin(path)?), None));
    }
    let name = options.kernel.as_deref().expect("clap requires a kernel, a source, PTX, a cubin or a task file");
    let kernel = kernels::find(name)?;
    let mut job = Job::catalog(&kernel.name);
    for scalar in &options.arg {
        job = job.scalar(&scalar.name, scalar.value);
    }
    Ok((job, None))
}

fn launch(job: Job, options: &Options, source: Option<&SourceText>) -> Result<Job, Complaint> {
    let Some(entry) = Entry::of(options, source)? else { return Ok(job) };
    let mut job = job.entry(&entry.name).shared_bytes(options.shared);
    job = match (&options.cover, &options.grid) {
        (Some(threads), _) => job.cover(threads.0.clone()),
        (None, Some(blocks)) => job.blocks(blocks.0.clone()),
        (None, None) => {
            return Err(Complaint::usage("the number of threads to launch is missing")
                .hint("give --cover with the size of your data, such as --cover 1000000 or --cover 640,480; or --grid with a number of blocks"));
        }
    };
    if let gpufleet::schema::Block::Threads(threads) = &options.block.0 {
        job = job.block(threads.clone());
    }
    if options.cooperative {
        job = job.cooperative();
    }
    if let Some(blocks) = &options.cluster {
        job = job.cluster(blocks.0.clone());
    }
    let args = options.args.as_ref().map(|args| entry.args(args)).transpose()?.unwrap_or_default();
    for arg in args {
        job = match arg {
            Arg::Buffer(name) => job.arg_buffer(name),
            Arg::BufferAt { name, offset } => job.arg_buffer_at(name, offset),
            Arg::Bytes { bytes, align } => job.arg_bytes(bytes, align),
            Arg::Progress(total) => job.arg_progress(total),
            Arg::Scalar(dtype, number) => job.arg_scalar(dtype, number),
        };
    }
    Ok(job)
}

fn buffers(mut job: Job, options: &Options, inputs: Purpose, chained: &ChainedInputs) -> Result<Job, Complaint> {
    for FileSpec { name, path, form } in options.input.iter().chain(&options.inout) {
        job = match chained.get(name) {
            Some(input) => job.buffer(input.clone()),
            None => match files::input(path, form.as_ref(), inputs)? {
                Input::Array(array) => job.input_array(name, array),
                Input::File(file) => job.input_file(name, file),
            },
        };
    }
    for zeros in &options.zeros {
        job = job.zeros(&zeros.name, zeros.form.dtype, zeros.form.shape.clone());
    }
    for fill in &options.fill {
        job = job.buffer(Buffer::new(
            fill.name.clone(),
            fill.form.dtype,
            fill.form.shape.clone(),
            Data::Fill(fill.value),
        ));
    }
    for out in &options.out {
        if let Some(form) = &out.form {
            job = job.zeros(&out.name, form.dtype, form.shape.clone());
        }
    }
    Ok(options.share.iter().fold(job, |job, name| job.share(name)))
}

/// The buffers to return. A catalog kernel returns the outputs that are saved, or all of them if none is.
fn returned(options: &Options) -> Vec<String> {
    let mut names: Vec<String> = options.out.iter().map(|out| out.name.clone()).collect();
    if options.kernel.is_none() {
        names.extend(options.inout.iter().map(|inout| inout.name.clone()));
    }
    names.sort();
    names.dedup();
    names
}

/// The complaint about a task that is too large for a message.
pub fn too_large(problem: &TooLarge, has_store: bool) -> Complaint {
    let hint = match has_store {
        true => {
            "arrays of 1 MiB or more already go through the blob store: join smaller ones, split the job, or create data on the device with --zeros or --fill"
        }
        false => TooLarge::ADVICE,
    };
    Complaint::bad_input(problem.to_string()).hint(hint)
}

/// The complaint about an invalid job, with advice.
pub fn invalid(problem: &InvalidJob, program: &Program<'_>) -> Complaint {
    let complaint = Complaint::bad_input(format!("invalid job: {problem}"));
    let hint = match problem {
        InvalidJob::Catalog(problem) => catalog_hint(problem, program),
        InvalidJob::Task(problem) => task_hint(&problem.field),
    };
    match hint {
        Some(hint) => complaint.hint(hint),
        None => complaint,
    }
}

fn catalog_hint(problem: &ResolveError, program: &Program<'_>) -> Option<String> {
    let (part, name) = problem.field().split_once('.').unwrap_or((problem.field(), ""));
    let Program::Catalog(kernel) = program else { return None };
    Some(match (problem.problem(), part) {
        (Problem::Missing { .. }, "arguments") => format!("add --arg {name}=VALUE"),
        (Problem::Missing { .. }, _) => {
            format!("add --in {name}=FILE, or --zeros {name}=f32[1024]")
        }
        (Problem::Surplus { .. }, _) => format!("remove {name}, or correct its name"),
        (Problem::OutputHasContents, _) => format!("remove its contents: --out {name}=FILE is enough"),
        (Problem::NoOutput { .. } | Problem::OutputTwice, _) => {
            "name only outputs of the kernel, each of them once".to_owned()
        }
        (Problem::LaunchesGiven, _) => {
            "remove the launches; your own program takes them: --source FILE --entry NAME".to_owned()
        }
        _ => format!("`gpufleet kernels {kernel}` shows what the kernel takes"),
    })
}

fn task_hint(field: &str) -> Option<String> {
    let hint = match field.split(['.', '[']).next()? {
        "launches" if field.contains("args") => {
            "--args takes the kernel's parameters in order: buffers by name, scalars as NAME=VALUE or NAME:DTYPE=VALUE"
        }
        "launches" => "correct --cover or --grid, --block, --shared or --cluster",
        "buffers" => "correct --in, --inout, --share, --zeros, --fill or --out",
        "outputs" => "an output must be a buffer of the job; create it with --zeros NAME=f32[1024]",
        "labels" => "correct --label KEY=VALUE",
        _ => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests;
