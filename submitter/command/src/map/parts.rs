//! The finished batches of a run: a folder beside the output, with one Parquet file for each, until all are joined.
//!
//! A part has its name only when it is on disk as a whole, and parts are finished in order. So the parts that exist are
//! the first ones, and a run that was killed at any moment continues after them.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    column::writer::ColumnCloseResult,
    errors::ParquetError,
    file::{
        metadata::{PageIndexPolicy, ParquetMetaDataReader},
        properties::WriterProperties,
        writer::SerializedFileWriter,
    },
};
use serde_json::Value;

use super::{settings, unusable};
use crate::{complaint::Complaint, exit::Exit, files};

const SETTINGS: &str = "settings.json";
const LOCK: &str = "lock";
/// A file that is not finished. There is one at a time.
const UNFINISHED: &str = "unfinished";

/// The parts of an output, which this process alone writes.
#[derive(Debug)]
pub struct Parts {
    output: PathBuf,
    folder: PathBuf,
    finished: usize,
    schema: SchemaRef,
    compression: Compression,
    /// Released when the process ends, however it ends.
    _lock: File,
}

impl Parts {
    /// Opens the folder of an output, or creates it. The parts of an earlier run must have the same settings.
    pub fn open(
        output: &Path,
        settings: &Value,
        schema: &SchemaRef,
        compression: Compression,
    ) -> Result<Self, Complaint> {
        let output = resolved(output)?;
        let folder = with_end(&output, ".parts");
        match fs::create_dir(&folder) {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => {
                return Err(files::unwritable(&folder, &problem));
            }
            _ => {}
        }
        let lock = lock(&folder)?;
        let mut parts = Self { output, folder, finished: 0, schema: schema.clone(), compression, _lock: lock };
        parts.agree(settings)?;
        parts.finished = (0..).find(|index| !parts.part(*index).exists()).unwrap_or(0);
        Ok(parts)
    }

    /// The number of finished parts.
    pub fn finished(&self) -> usize {
        self.finished
    }

    /// Writes the next part. It is on disk when this returns.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), Complaint> {
        let part = self.part(self.finished);
        self.write(&part, |file| {
            let mut writer = ArrowWriter::try_new(file, self.schema.clone(), Some(self.properties()))?;
            writer.write(batch)?;
            writer.close().map(drop)
        })?;
        self.finished += 1;
        Ok(())
    }

    /// Joins the parts to the output, and removes them.
    pub fn join(self) -> Result<(), Complaint> {
        self.write(&self.output, |file| {
            let writer = ArrowWriter::try_new(file, self.schema.clone(), Some(self.properties()))?;
            let (mut writer, _) = writer.into_serialized_writer()?;
            (0..self.finished).try_for_each(|index| append(&mut writer, &self.part(index)))?;
            writer.close().map(drop)
        })?;
        fs::remove_dir_all(&self.folder).map_err(|problem| {
            Complaint::bad_input(format!("failed to remove {}: {problem}", self.folder.display()))
                .hint("the output is complete; remove the folder")
        })
    }

    /// Compares the settings with those of the earlier run, or keeps them for later ones.
    fn agree(&self, settings: &Value) -> Result<(), Complaint> {
        let path = self.folder.join(SETTINGS);
        let before = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or(Value::Null),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
                return self.write(&path, |mut file| Ok(file.write_all(settings.to_string().as_bytes())?));
            }
            Err(problem) => return Err(files::unreadable(&path, &problem)),
        };
        let Some(difference) = settings::difference(&before, settings) else { return Ok(()) };
        let folder = self.folder.display();
        Err(Complaint::bad_input(format!(
            "{folder} has the batches of an unfinished run with other settings: {difference}"
        ))
        .hint(format!("repeat the earlier command to continue it, or start anew: rm -r {folder}")))
    }

    /// Writes a file that appears whole or not at all, also if the machine fails.
    fn write(&self, path: &Path, fill: impl FnOnce(&File) -> Result<(), ParquetError>) -> Result<(), Complaint> {
        let failed = |problem: &io::Error| files::unwritable(path, problem);
        let unfinished = self.folder.join(UNFINISHED);
        let file = File::create(&unfinished).map_err(|problem| failed(&problem))?;
        fill(&file).map_err(|problem| unusable("write", path, &problem))?;
        file.sync_all().map_err(|problem| failed(&problem))?;
        let named = fs::rename(&unfinished, path).and_then(|()| File::open(files::folder_of(path))?.sync_all());
        named.map_err(|problem| failed(&problem))
    }

    fn properties(&self) -> WriterProperties {
        WriterProperties::builder().set_compression(self.compression).build()
    }

    fn part(&self, index: usize) -> PathBuf {
        self.folder.join(format!("{index:06}.parquet"))
    }
}

/// Appends the row groups of a part as they are.
fn append(writer: &mut SerializedFileWriter<&File>, part: &Path) -> Result<(), ParquetError> {
    let file = File::open(part)?;
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    let metadata = reader.parse_and_finish(&file)?;
    let pages = metadata.page_index();
    for (group_index, group) in metadata.row_groups().iter().enumerate() {
        let mut appended = writer.next_row_group()?;
        for (index, column) in group.columns().iter().enumerate() {
            let close = ColumnCloseResult {
                bytes_written: u64::try_from(column.compressed_size())?,
                rows_written: u64::try_from(group.num_rows())?,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: pages.and_then(|pages| pages.column_index(group_index, index)).cloned(),
                offset_index: pages.and_then(|pages| pages.offset_index(group_index, index)).cloned(),
            };
            appended.append_column(&file, close)?;
        }
        appended.close()?;
    }
    Ok(())
}

/// The plain file that the output is or will be. A link stays one.
fn resolved(output: &Path) -> Result<PathBuf, Complaint> {
    files::check_folder(output)?;
    match fs::canonicalize(output) {
        Ok(path) if path.is_file() => Ok(path),
        Ok(_) => Err(unusable("write", output, &"it is not a plain file").hint("give the path of a plain file")),
        Err(_) => Ok(output.to_owned()),
    }
}

fn lock(folder: &Path) -> Result<File, Complaint> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|problem| files::unwritable(&path, &problem))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Complaint::new(Exit::BadInput, format!("another run writes into {}", folder.display()))
                .hint("wait until it ends, or write to another file"))
        }
        Err(TryLockError::Error(problem)) => Err(files::unwritable(&path, &problem)),
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests;
