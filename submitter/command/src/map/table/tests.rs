use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Int64Array, StringArray, cast::AsArray as _, types};
use clap::Parser;
use parquet::{
    arrow::ArrowWriter,
    basic::ZstdLevel,
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
};

use super::*;
use crate::map::Options;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn mapping(table: &Table, more: &[&str]) -> Mapping {
    let line = ["map", "--parquet", "in", "out", "--kernel", "saxpy", "--columns", "x,x"];
    let options = Line::try_parse_from([&line[..], more].concat()).unwrap().options;
    Mapping::plan(&options, table.schema()).unwrap()
}

/// A table with an id, a float and a word in row groups of 7 rows.
fn write(path: &Path, rows: i64, float: impl Fn(i64) -> Option<f32>, properties: WriterPropertiesBuilder) {
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("x", Arc::new(Float32Array::from_iter((0..rows).map(float)))),
        ("word", Arc::new(StringArray::from_iter_values((0..rows).map(|row| format!("w{}", row / 5))))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    let properties = properties.set_max_row_group_row_count(Some(7)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn simple(path: &Path, rows: i64) {
    write(path, rows, |row| Some(row as f32), WriterProperties::builder());
}

/// The ids that a read from this batch on gives, batch by batch.
fn ids(table: &Table, batches: &Batches, first: usize) -> Vec<Vec<i64>> {
    let read = table.read(&mapping(table, &[]), batches, first).unwrap();
    let ids = |batch: RecordBatch| {
        let ids = batch.column(0).as_primitive::<types::Int64Type>().values().to_vec();
        let words = batch.column(2).as_string::<i32>();
        assert!(ids.iter().zip(words).all(|(id, word)| word == Some(&format!("w{}", id / 5))));
        ids
    };
    read.map(|batch| ids(batch.unwrap())).collect()
}

#[test]
fn batches_are_equal_whatever_the_row_groups_and_the_batch_to_start_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.parquet");
    simple(&path, 40);
    let table = Table::open(&path).unwrap();
    assert_eq!(table.row_groups().len(), 6);
    for rows_each in [1, 3, 7, 10, 14, 40, 100] {
        let batches = Batches::of(table.rows(), rows_each);
        let all: Vec<Vec<i64>> =
            (0..batches.count()).map(|index| batches.rows(index).map(|row| row as i64).collect()).collect();
        for first in 0..=batches.count() {
            assert_eq!(ids(&table, &batches, first), all[first..], "{rows_each} rows from batch {first}");
        }
    }
}

#[test]
fn a_file_without_rows_has_no_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.parquet");
    simple(&path, 0);
    let table = Table::open(&path).unwrap();
    let batches = Batches::of(table.rows(), table.batch_rows(&mapping(&table, &[])));
    assert_eq!((table.rows(), batches.count()), (0, 0));
    assert!(ids(&table, &batches, 0).is_empty());
}

#[test]
fn nulls_that_the_file_counts_are_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.parquet");
    let holes = |row: i64| (row != 9 && row != 30).then_some(1.0);
    write(&path, 40, holes, WriterProperties::builder());
    let table = Table::open(&path).unwrap();
    let refused = table.check_nulls(&mapping(&table, &[])).unwrap_err();
    assert!(refused.message.contains("column x has nulls") && refused.message.ends_with("counts 2"), "{refused:?}");
    table.check_nulls(&mapping(&table, &["--fill-null", "0"])).unwrap();
    // Some writers count nothing. The nulls are then found when the rows are read.
    write(&path, 40, holes, WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None));
    let table = Table::open(&path).unwrap();
    let plan = mapping(&table, &[]);
    table.check_nulls(&plan).unwrap();
    let batches = Batches::of(table.rows(), 20);
    let rows: Vec<_> = table.read(&plan, &batches, 0).unwrap().zip([0, 20]).collect();
    let problems = rows.into_iter().map(|(batch, first)| plan.inputs(&batch.unwrap(), first).unwrap_err().message);
    let problems: Vec<String> = problems.collect();
    assert!(problems[0].ends_with("row 9 is null") && problems[1].ends_with("row 30 is null"), "{problems:?}");
}

#[test]
fn the_compression_of_the_input_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.parquet");
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::GZIP(parquet::basic::GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        write(&path, 20, |_| Some(1.0), WriterProperties::builder().set_compression(compression));
        let table = Table::open(&path).unwrap();
        assert_eq!(table.compression(), compression);
        assert_eq!(ids(&table, &Batches::of(20, 20), 0).len(), 1);
    }
}

#[test]
fn what_is_no_parquet_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.parquet");
    std::fs::write(&text, "no Parquet at all").unwrap();
    for (path, says) in
        [(text.as_path(), "Parquet"), (folder.path(), "not a plain file"), (Path::new("none.parquet"), "No such file")]
    {
        let complaint = Table::open(path).unwrap_err();
        assert!(complaint.message.starts_with("failed to read ") && complaint.message.contains(says), "{complaint:?}");
        assert!(complaint.hint.is_some());
    }
}
