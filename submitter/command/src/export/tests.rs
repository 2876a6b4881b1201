use std::{collections::BTreeSet, fs::File};

use arrow_array::{Array as _, RecordBatch, cast::AsArray as _, types::Int64Type};
use gpufleet_ledger::FailureRow;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::history::tests::job;

const IDS: [&str; 2] = ["01990f3e-0000-7000-8000-000000000002", "01990f3e-0000-7000-8000-000000000001"];

/// One that failed and one that succeeded.
fn jobs() -> Vec<JobRow> {
    let mut jobs: Vec<JobRow> = IDS.iter().map(|id| job(id)).collect();
    jobs[0].state = "failed".parse().unwrap();
    jobs[0].kernel_us = None;
    jobs[0].failure = Some(FailureRow {
        verdict: "user".to_owned(),
        code: "kernel_fault".to_owned(),
        message: "misaligned, address".to_owned(),
        detail: None,
        line: Some(3),
        source: None,
    });
    jobs
}

fn exported(format: Format, pages: &[Vec<JobRow>]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs");
    let mut writer = Writer::new(format, PartialFile::create(&path).unwrap()).unwrap();
    pages.iter().for_each(|page| writer.add(page).unwrap());
    assert!(!path.exists(), "an unfinished file has no name");
    writer.finish().unwrap().finish().unwrap();
    (folder, path)
}

#[test]
fn parquet_has_a_typed_column_for_each_field_of_the_json() {
    let fields = serde_json::to_value(&jobs()[0]).unwrap();
    let fields = fields.as_object().unwrap().iter().flat_map(|(name, value)| match value.as_object() {
        Some(failure) if name == "failure" => failure.keys().map(|field| format!("failure_{field}")).collect(),
        // Of a host program there is the name of its environment or image.
        None if name == "host_program" => vec!["environment".to_owned()],
        _ => vec![name.clone()],
    });
    assert_eq!(fields.collect::<BTreeSet<_>>(), columns::names().map(str::to_owned).collect::<BTreeSet<_>>());

    let (_folder, path) = exported(Format::Parquet, &[jobs(), jobs()]);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let batch = &batches[0];
    let column = |name: &str| batch.column_by_name(name).unwrap();
    assert_eq!(batch.num_rows(), 4);
    assert_eq!(column("job_id").as_string::<i32>().value(1), IDS[1]);
    assert_eq!(column("failure_message").as_string::<i32>().value(0), "misaligned, address");
    assert!(column("failure_message").is_null(1) && column("kernel_us").is_null(0));
    assert_eq!(column("kernel_us").as_primitive::<Int64Type>().value(1), 45_678);
    let labels = column("labels").as_map().value(0);
    assert_eq!(labels.column(0).as_string::<i32>().value(0), "team");
    assert_eq!(labels.column(1).as_string::<i32>().value(0), "vision");
}

#[test]
fn csv_and_json_lines_are_those_of_the_history() {
    let (_folder, path) = exported(Format::Jsonl, &[jobs(), Vec::new()]);
    let lines: Vec<serde_json::Value> =
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(serde_json::Value::from(lines), serde_json::to_value(jobs()).unwrap());

    let (_folder, path) = exported(Format::Csv, &[jobs()]);
    let expected = crate::history::csv_header() + &jobs().iter().map(crate::history::csv_of).collect::<String>();
    assert_eq!(fs::read_to_string(path).unwrap(), expected);
}

#[test]
fn the_name_of_the_file_gives_the_format() {
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }
    let format = |arguments: &[&str]| Command::parse_from([&["export"], arguments].concat()).options.format();
    assert_eq!(format(&["--out", "a/jobs.parquet"]).unwrap(), Format::Parquet);
    assert_eq!(format(&["--out", "jobs.CSV"]).unwrap(), Format::Csv);
    assert_eq!(format(&["--out", "jobs.csv", "--format", "jsonl"]).unwrap(), Format::Jsonl);
    for unclear in ["jobs", "jobs.json", "/dev/null"] {
        assert_eq!(format(&["--out", unclear]).unwrap_err().exit, Exit::Usage, "{unclear}");
    }
}
