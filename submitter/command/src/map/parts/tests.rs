use std::{collections::BTreeSet, ops::Range, sync::Arc};

use arrow_array::{Array as _, DictionaryArray, Int8Array, Int32Array, StringArray, cast::AsArray as _, types};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;

use super::*;

/// A number, and a word that is null for odd numbers.
fn schema() -> SchemaRef {
    let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let fields = vec![Field::new("n", DataType::Int32, false), Field::new("word", words, true)];
    Arc::new(Schema::new(fields).with_metadata([("owner".to_owned(), "anna".to_owned())]))
}

fn batch(numbers: Range<i32>) -> RecordBatch {
    let keys = Int8Array::from_iter(numbers.clone().map(|number| (number % 2 == 0).then_some(0)));
    let words = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["even"])));
    RecordBatch::try_new(schema(), vec![Arc::new(Int32Array::from_iter_values(numbers)), Arc::new(words)]).unwrap()
}

fn open(output: &Path, settings: &Value) -> Result<Parts, Complaint> {
    Parts::open(output, settings, &schema(), Compression::SNAPPY)
}

/// Writes three batches to an output, and dies before some of them.
fn run(output: &Path, deaths: &[usize]) {
    let mut deaths = BTreeSet::from_iter(deaths.iter().copied());
    loop {
        let mut parts = open(output, &json!({"kernel": "saxpy"})).unwrap();
        let next = parts.finished();
        if next == 3 && deaths.remove(&3) {
            // It died while it joined the parts.
            fs::write(parts.folder.join(UNFINISHED), b"PAR1 half").unwrap();
            continue;
        }
        if next == 3 {
            return parts.join().unwrap();
        }
        if deaths.remove(&next) {
            fs::write(parts.folder.join(UNFINISHED), b"half").unwrap();
            continue;
        }
        let start = next as i32 * 10;
        parts.add(&batch(start..start + 10)).unwrap();
    }
}

#[test]
fn a_run_that_dies_again_and_again_writes_an_equal_file() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, resumed] = ["whole.parquet", "resumed.parquet"].map(|name| folder.path().join(name));
    run(&whole, &[]);
    run(&resumed, &[0, 1, 2, 3]);
    assert!(fs::read(&whole).unwrap() == fs::read(&resumed).unwrap(), "the files differ");
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the folders of the parts are gone: {names:?}");
}

#[test]
fn the_output_has_all_rows_in_order_and_the_metadata_of_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.parquet");
    run(&output, &[]);
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&output).unwrap()).unwrap();
    assert_eq!(builder.schema(), &schema());
    assert_eq!(builder.metadata().num_row_groups(), 3);
    let mut next = 0;
    for batch in builder.build().unwrap().map(Result::unwrap) {
        let words = batch.column(1).as_dictionary::<types::Int8Type>().downcast_dict::<StringArray>().unwrap();
        for (row, number) in batch.column(0).as_primitive::<types::Int32Type>().values().iter().enumerate() {
            assert_eq!((*number, words.is_null(row)), (next, next % 2 == 1));
            next += 1;
        }
    }
    assert_eq!(next, 30);
}

#[test]
fn an_output_without_rows_has_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.parquet");
    open(&output, &json!({})).unwrap().join().unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&output).unwrap()).unwrap();
    assert_eq!((builder.schema(), builder.metadata().num_row_groups()), (&schema(), 0));
}

#[test]
fn other_settings_and_a_second_run_at_once_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.parquet");
    let first = open(&output, &json!({"kernel": "saxpy"})).unwrap();
    let second = open(&output, &json!({"kernel": "saxpy"})).unwrap_err();
    assert!(second.message.contains("another run writes into"), "{}", second.message);
    drop(first);
    let other = open(&output, &json!({"kernel": "vector_add"})).unwrap_err();
    assert!(other.message.contains(r#"the kernel was "saxpy", and is now "vector_add""#), "{}", other.message);
    assert!(other.hint.unwrap().contains("rm -r "));
    open(&output, &json!({"kernel": "saxpy"})).unwrap();
}

#[test]
fn only_a_plain_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for (path, says) in [(folder.path(), "it is a folder"), (Path::new("/dev/null"), "it is not a plain file")] {
        assert!(open(path, &json!({})).unwrap_err().message.contains(says), "{}", path.display());
    }
    let missing = open(&folder.path().join("none/out.parquet"), &json!({})).unwrap_err();
    assert!(missing.message.contains("its folder does not exist"), "{}", missing.message);
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    fs::write(&file, "before").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    run(&link, &[]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::read(&file).unwrap().starts_with(b"PAR1"));
}
