//! `gpufleet submit --dry-run`: prints the job that would be submitted, without the bytes of its arrays.

use gpufleet::schema::{Buffer, Data, Inline, JobId, PoolName, Priority, Program, Task, bounds::BLOB_BYTES_MIN};
use gpufleet::{BlobLocation, CheckedJob};
use gpufleet_blobs::BlobStore;
use serde::Serialize;
use serde_json::Value;

use super::{
    keeping,
    plan::{self, Plan},
};
use crate::{
    complaint::Complaint,
    connection,
    exit::Exit,
    options::Format,
    output, quantity,
    table::{self, Column},
};

/// The output of `-o json`.
#[derive(Debug, Serialize)]
struct DryRun {
    job_id: JobId,
    pool: PoolName,
    priority: Priority,
    arrays: Vec<ArraySize>,
    /// The size of the outputs that the job returns.
    output_bytes: u64,
    /// The task. `null` stands for the bytes of arrays and of a cubin.
    task: Value,
}

/// An array of the job.
#[derive(Debug, Serialize)]
struct ArraySize {
    name: String,
    bytes: u64,
    source: Source,
}

/// Where a worker gets the array from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    Message,
    BlobStore,
    /// It is filled there.
    Device,
}

impl Source {
    const fn text(self) -> &'static str {
        match self {
            Self::Message => "the message",
            Self::BlobStore => "the blob store",
            Self::Device => "filled on the device",
        }
    }
}

/// Checks that the store of large arrays can be used, without storing anything.
pub async fn check_store(location: Option<BlobLocation>) -> Result<(), Complaint> {
    match location {
        Some(location) => BlobStore::open(location).await.map(drop).map_err(|error| connection::blob_complaint(&error)),
        None => Ok(()),
    }
}

/// Prints a job that was checked.
pub fn print(plan: &Plan, format: Format) -> Result<(), Complaint> {
    let run = DryRun::of(plan)?;
    match format {
        Format::Table => output::emit(&run.describe()?),
        Format::Json => output::emit_json(&run),
    }
}

impl DryRun {
    fn of(plan: &Plan) -> Result<Self, Complaint> {
        let invalid = |problem| plan::invalid(&problem, plan.job.program());
        let CheckedJob { task, pool, priority } = plan.job.clone().build().map_err(invalid)?;
        Ok(Self {
            job_id: task.job_id,
            pool,
            priority,
            arrays: task.buffers.iter().map(|buffer| ArraySize::of(buffer, plan.has_store)).collect(),
            output_bytes: keeping::output_bytes(&task),
            task: without_bytes(task)?,
        })
    }

    fn describe(&self) -> Result<String, Complaint> {
        let mut text = format!("job {} is valid; nothing was submitted\n", self.job_id);
        text.push_str(&format!("pool {}, priority {}\n", self.pool, self.priority));
        if !self.arrays.is_empty() {
            let columns = [Column::Left("ARRAY"), Column::Right("SIZE"), Column::Left("COMES FROM")];
            let row = |array: &ArraySize| {
                vec![array.name.clone(), quantity::bytes(array.bytes), array.source.text().to_owned()]
            };
            text.push_str(&table::render(&columns, self.arrays.iter().map(row)));
        }
        text.push_str(&format!("outputs: {}\n", quantity::bytes(self.output_bytes)));
        text.push_str(&serde_json::to_string_pretty(&self.task).map_err(|error| internal(&error))?);
        text.push('\n');
        Ok(text)
    }
}

impl ArraySize {
    fn of(buffer: &Buffer<'_>, has_store: bool) -> Self {
        let source = match &buffer.data {
            Data::Zeros | Data::Fill(_) => Source::Device,
            Data::Inline(_) if has_store && buffer.inline_bytes() >= BLOB_BYTES_MIN => Source::BlobStore,
            Data::Inline(_) => Source::Message,
            Data::Blob(_) | Data::Output(_) => Source::BlobStore,
        };
        let bytes = buffer.shape.iter().fold(buffer.dtype.size() as u64, |bytes, extent| bytes.saturating_mul(*extent));
        Self { name: buffer.name.clone(), bytes, source }
    }
}

/// The task as JSON, with `null` for bytes, and for the digests of arrays that are not in the store yet.
fn without_bytes(mut task: Task<'static>) -> Result<Value, Complaint> {
    let mut left_out = Vec::new();
    for (index, buffer) in task.buffers.iter_mut().enumerate() {
        let is_pending = CheckedJob::is_pending(buffer);
        if is_pending || matches!(buffer.data, Data::Inline(_)) {
            buffer.data = Data::Zeros;
            left_out.push(format!("/buffers/{index}/data"));
        }
    }
    if let Program::Cubin(image) = &mut task.program {
        *image = Inline::from(Vec::<u8>::new());
        left_out.push("/program/cubin".to_owned());
    }
    let mut value = serde_json::to_value(&task).map_err(|error| internal(&error))?;
    for pointer in left_out {
        if let Some(bytes) = value.pointer_mut(&pointer) {
            *bytes = Value::Null;
        }
    }
    Ok(value)
}

fn internal(error: &serde_json::Error) -> Complaint {
    Complaint::new(Exit::Internal, format!("failed to write the task as JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gpufleet::{Array, Job};

    use super::*;
    use crate::json;

    const ID: &str = "01990f3e-0000-7000-8000-000000000001";

    fn plan(has_store: bool) -> Plan {
        let large = Array::from_slice(&vec![1_u8; BLOB_BYTES_MIN as usize]);
        let job = Job::source("code")
            .with_id(ID.parse().unwrap())
            .input("x", &[1.0_f32, 2.0, 3.0])
            .input_array("large", large)
            .zeros("y", gpufleet::schema::Dtype::F32, [3])
            .entry("k")
            .cover([3])
            .arg_buffer("x")
            .output("y");
        Plan {
            job,
            pool: PoolName::default(),
            saves: BTreeMap::new(),
            source: None,
            has_store,
            keeping: keeping::Keeping::default(),
        }
    }

    #[test]
    fn the_task_is_shown_without_the_bytes_of_arrays() {
        let run = DryRun::of(&plan(true)).unwrap();
        let sources: Vec<Source> = run.arrays.iter().map(|array| array.source).collect();
        assert_eq!(sources, [Source::Message, Source::BlobStore, Source::Device]);
        assert_eq!(run.task["buffers"][0]["data"], Value::Null);
        let text = run.describe().unwrap();
        assert!(
            text.starts_with(&format!("job {ID} is valid; nothing was submitted\npool default, priority normal\n"))
        );
        assert!(text.contains("large  1.00 MiB  the blob store\n") && text.contains("outputs: 12 B\n"), "{text}");
    }

    #[tokio::test]
    async fn a_store_that_refuses_arrays_makes_the_job_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| Some(BlobLocation::from(folder.path().join(name)));
        let complaint = check_store(of("none")).await.unwrap_err();
        assert!(complaint.message.contains("none as a blob store"), "{}", complaint.message);
        assert_eq!(check_store(of("")).await, Ok(()));
        assert_eq!(check_store(None).await, Ok(()));
    }

    #[test]
    fn without_a_store_all_arrays_are_in_the_message() {
        let sources: Vec<Source> = DryRun::of(&plan(false)).unwrap().arrays.iter().map(|array| array.source).collect();
        assert_eq!(sources, [Source::Message, Source::Message, Source::Device]);
    }

    #[test]
    fn a_cubin_is_not_shown() {
        let job = Job::cubin(b"\x7fELF canary".to_vec()).entry("k").blocks([1]);
        let run = DryRun::of(&Plan { job, ..plan(false) }).unwrap();
        assert_eq!(run.task["program"], serde_json::json!({ "cubin": null }));
    }

    #[test]
    fn the_help_names_the_fields_of_the_json() {
        let run = DryRun { task: Value::Null, ..DryRun::of(&plan(true)).unwrap() };
        json::check(json::DRY_RUN, &run);
    }
}
