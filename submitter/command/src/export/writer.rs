//! Writes pages of jobs in one of the formats.

use std::{
    fmt::Display,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use arrow_schema::SchemaRef;
use gpufleet_ledger::JobRow;
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};

use super::{Format, columns, unwritable};
use crate::{complaint::Complaint, files::PartialFile, history};

/// A row group is in memory until it is complete, at about 200 bytes a job. Readers work on row groups in parallel, and skip some by their
/// smallest and largest values.
const ROW_GROUP_JOBS: usize = 100_000;

pub struct Writer {
    path: PathBuf,
    file: File,
}

enum File {
    Csv(BufWriter<PartialFile>),
    Jsonl(BufWriter<PartialFile>),
    Parquet { schema: SchemaRef, writer: Box<ArrowWriter<PartialFile>> },
}

impl Writer {
    pub fn new(format: Format, file: PartialFile) -> Result<Self, Complaint> {
        let path = file.path().to_owned();
        let file = match format {
            Format::Csv => {
                let mut file = BufWriter::new(file);
                file.write_all(history::csv_header().as_bytes()).map_err(failed(&path))?;
                File::Csv(file)
            }
            Format::Jsonl => File::Jsonl(BufWriter::new(file)),
            Format::Parquet => {
                let schema = columns::schema();
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(Default::default()))
                    .set_max_row_group_row_count(Some(ROW_GROUP_JOBS))
                    .build();
                let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(failed(&path))?;
                File::Parquet { schema, writer: Box::new(writer) }
            }
        };
        Ok(Self { path, file })
    }

    pub fn add(&mut self, jobs: &[JobRow]) -> Result<(), Complaint> {
        match &mut self.file {
            File::Csv(file) => jobs
                .iter()
                .try_for_each(|job| file.write_all(history::csv_of(job).as_bytes()))
                .map_err(failed(&self.path)),
            File::Jsonl(file) => jobs
                .iter()
                .try_for_each(|job| {
                    // Serde writes a few bytes at a time, which a text takes faster than a file.
                    let line = serde_json::to_string(job)? + "\n";
                    file.write_all(line.as_bytes())
                })
                .map_err(failed(&self.path)),
            File::Parquet { schema, writer } => {
                let batch = columns::batch(schema, jobs).map_err(failed(&self.path))?;
                writer.write(&batch).map_err(failed(&self.path))
            }
        }
    }

    /// The complete file, which still has to get its name.
    pub fn finish(self) -> Result<PartialFile, Complaint> {
        match self.file {
            File::Csv(file) | File::Jsonl(file) => file.into_inner().map_err(failed(&self.path)),
            File::Parquet { writer, .. } => writer.into_inner().map_err(failed(&self.path)),
        }
    }
}

fn failed<E: Display>(path: &Path) -> impl FnOnce(E) -> Complaint {
    |problem| unwritable(path, &problem)
}
