//! Writes a retired partition to a Parquet file, and reads it back before the partition is dropped.
//!
//! The file has the columns of the table. Ids, JSON and lists are texts; times are microseconds in UTC.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{
    Array as _, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    cast::AsArray as _,
    types::{Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};
use futures::TryStreamExt as _;
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::retired::Retired;

/// The number of rows in a batch, which is held in memory.
const ROWS_PER_BATCH: usize = 4096;

/// The reason why a month was not archived. Such a month is not dropped.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("failed to write the archive {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: WriteError,
    },
    #[error("the archive {} does not have the values of the {rows} rows that were written; check the disk", path.display())]
    Differs { path: PathBuf, rows: u64 },
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    File(#[from] std::io::Error),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    #[error("failed to read the table")]
    Database(#[from] sqlx::Error),
}

/// The contents of a file, expected or actual: the number of rows, and a digest of each column's values in order.
#[derive(Debug, Default)]
struct Content {
    rows: u64,
    columns: Vec<DefaultHasher>,
}

/// A column of the table, and its type in the file.
struct Column {
    name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Int32,
    Int64,
    Time,
    Text,
    Json,
}

/// Writes the file of this partition into the folder. Overwrites the unfinished file of an interrupted run.
pub(super) async fn write(
    connection: &mut PgConnection,
    partition: &Retired,
    folder: &Path,
) -> Result<(), ArchiveError> {
    let path = folder.join(format!("{}.parquet", partition.file_stem()));
    let unfinished = path.with_extension("parquet.unfinished");
    let failed = |source| ArchiveError::Write { path: path.clone(), source };
    let written = write_to(connection, partition, &unfinished).await.map_err(failed)?;
    let read = read(&unfinished).map_err(failed)?;
    if read != written {
        return Err(ArchiveError::Differs { path, rows: written.rows });
    }
    let finish = || {
        fs::rename(&unfinished, &path)?;
        File::open(folder)?.sync_all()
    };
    finish().map_err(|source| failed(source.into()))
}

async fn write_to(connection: &mut PgConnection, partition: &Retired, path: &Path) -> Result<Content, WriteError> {
    let columns = columns(connection, partition).await?;
    let schema = Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()));
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut writer = ArrowWriter::try_new(File::create(path)?, Arc::clone(&schema), Some(properties))?;
    let mut content = Content::default();
    let selected: Vec<String> = columns.iter().map(Column::expression).collect();
    let sql = format!("select {} from {partition} order by job_id", selected.join(", "));
    let mut chunks = sqlx::query(AssertSqlSafe(sql)).fetch(connection).try_chunks(ROWS_PER_BATCH);
    while let Some(rows) = chunks.try_next().await.map_err(|error| error.1)? {
        let arrays: Vec<ArrayRef> =
            columns.iter().enumerate().map(|(index, column)| column.array(&rows, index)).collect::<Result<_, _>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
        content.add(&batch);
        writer.write(&batch)?;
    }
    writer.into_inner()?.sync_all()?;
    Ok(content)
}

/// Reads all values of a file back.
fn read(path: &Path) -> Result<Content, WriteError> {
    let mut content = Content::default();
    for batch in ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()? {
        content.add(&batch?);
    }
    Ok(content)
}

async fn columns(connection: &mut PgConnection, partition: &Retired) -> Result<Vec<Column>, sqlx::Error> {
    let described = sqlx::query!(
        r#"/* retention::columns */
        select attname::text as "name!", format_type(atttypid, null) as "kind!"
        from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped order by attnum"#,
        partition.to_string(),
    )
    .fetch_all(connection)
    .await?;
    let column = |name, kind: String| Column { name, kind: Kind::of(&kind) };
    Ok(described.into_iter().map(|row| column(row.name, row.kind)).collect())
}

impl Content {
    /// Adds rows. The boundaries between batches make no difference.
    fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.columns.resize(batch.num_columns(), DefaultHasher::new());
        for (values, digest) in batch.columns().iter().zip(&mut self.columns) {
            match values.data_type() {
                DataType::Boolean => values.as_boolean().iter().for_each(|value| value.hash(digest)),
                DataType::Int32 => values.as_primitive::<Int32Type>().iter().for_each(|value| value.hash(digest)),
                DataType::Int64 => values.as_primitive::<Int64Type>().iter().for_each(|value| value.hash(digest)),
                DataType::Timestamp(..) => {
                    values.as_primitive::<TimestampMicrosecondType>().iter().for_each(|value| value.hash(digest));
                }
                _ => values.as_string::<i32>().iter().for_each(|value| value.hash(digest)),
            }
        }
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let digests = |content: &Self| -> Vec<u64> { content.columns.iter().map(DefaultHasher::finish).collect() };
        self.rows == other.rows && digests(self) == digests(other)
    }
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "boolean" => Self::Boolean,
            "integer" => Self::Int32,
            "bigint" => Self::Int64,
            "timestamp with time zone" => Self::Time,
            name if name.ends_with("[]") => Self::Json,
            _ => Self::Text,
        }
    }
}

impl Column {
    fn field(&self) -> Field {
        let kind = match self.kind {
            Kind::Boolean => DataType::Boolean,
            Kind::Int32 => DataType::Int32,
            Kind::Int64 => DataType::Int64,
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Text | Kind::Json => DataType::Utf8,
        };
        Field::new(&self.name, kind, true)
    }

    /// Returns the SQL expression to select. The names are those of our tables, which need no escapes.
    fn expression(&self) -> String {
        let name = &self.name;
        match self.kind {
            Kind::Boolean | Kind::Int32 | Kind::Int64 => format!("\"{name}\""),
            Kind::Time => format!("(extract(epoch from \"{name}\") * 1000000)::bigint"),
            Kind::Text => format!("\"{name}\"::text"),
            Kind::Json => format!("to_json(\"{name}\")::text"),
        }
    }

    fn array(&self, rows: &[PgRow], index: usize) -> Result<ArrayRef, sqlx::Error> {
        fn all<'r, T, A>(rows: &'r [PgRow], index: usize) -> Result<A, sqlx::Error>
        where
            T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
            A: FromIterator<Option<T>>,
        {
            rows.iter().map(|row| row.try_get::<Option<T>, _>(index)).collect()
        }
        Ok(match self.kind {
            Kind::Boolean => Arc::new(all::<bool, BooleanArray>(rows, index)?),
            Kind::Int32 => Arc::new(all::<i32, Int32Array>(rows, index)?),
            Kind::Int64 => Arc::new(all::<i64, Int64Array>(rows, index)?),
            Kind::Time => Arc::new(all::<i64, TimestampMicrosecondArray>(rows, index)?.with_timezone("UTC")),
            Kind::Text | Kind::Json => Arc::new(all::<&str, StringArray>(rows, index)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(numbers: &[Option<i64>], texts: &[&str]) -> RecordBatch {
        let columns: [(&str, ArrayRef); 2] = [
            ("number", Arc::new(Int64Array::from(numbers.to_vec()))),
            ("text", Arc::new(StringArray::from(texts.to_vec()))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn content(batches: &[RecordBatch]) -> Content {
        let mut content = Content::default();
        batches.iter().for_each(|batch| content.add(batch));
        content
    }

    #[test]
    fn contents_are_equal_if_every_value_is() {
        let whole = content(&[batch(&[Some(1), None, Some(0)], &["a", "b", "c"])]);
        let in_parts = [batch(&[Some(1)], &["a"]), batch(&[None, Some(0)], &["b", "c"])];
        assert_eq!(whole, content(&in_parts));
        for (numbers, texts) in [
            ([Some(1), None, Some(2)], ["a", "b", "c"]),
            ([Some(1), Some(0), None], ["a", "b", "c"]),
            ([Some(1), None, Some(0)], ["a", "bc", ""]),
            ([None, Some(1), Some(0)], ["b", "a", "c"]),
        ] {
            assert_ne!(whole, content(&[batch(&numbers, &texts)]), "{numbers:?} {texts:?}");
        }
        assert_ne!(whole, content(&in_parts[..1]));
    }
}
