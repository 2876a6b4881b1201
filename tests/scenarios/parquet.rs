//! `gpufleet map`: a kernel processes the rows of a Parquet file in batches. A run that is killed at any moment can be
//! continued, and the resulting file is the same.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use arrow_array::{
    Array as _, ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, cast::AsArray as _, types,
};
use gpufleet_tests::{Ground, poll_until};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    file::properties::WriterProperties,
};
use serde_json::Value;

const ROWS: usize = 10_000;
const MAP: [&str; 9] =
    ["map", "--parquet", "in.parquet", "out.parquet", "--kernel", "saxpy", "--columns", "x,y", "--arg=a=2"];

fn map<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&MAP[..], more].concat()
}

/// Writes a table with an id, two columns for saxpy, a column with nulls and a column of words, in row groups of 3000
/// rows.
fn write_table(path: &Path) {
    let numbers =
        |number: fn(usize) -> f32| Arc::new(Float32Array::from_iter_values((0..ROWS).map(number))) as ArrayRef;
    let holes = (0..ROWS).map(|row| (row != 7_500).then_some(1.0));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS as i64))),
        ("x", numbers(|row| row as f32)),
        ("y", numbers(|row| 1.0 + row as f32)),
        ("holes", Arc::new(Float32Array::from_iter(holes))),
        ("word", Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("word {row}"))))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    write(path, &batch, 3_000);
}

/// Writes a table in row groups of this many rows.
fn write(path: &Path, batch: &RecordBatch, rows: usize) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn folder_with_table() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder.path().join("in.parquet"));
    folder
}

fn read_table(path: &Path) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    reader.with_batch_size(ROWS).build().unwrap().next().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapped_file_has_the_results_and_all_other_columns_in_order() {
    let (ground, _worker) = Ground::with_worker("parquet").await;
    let folder = folder_with_table();
    let more = ["--batch-rows", "700", "--out-columns", "sum", "--drop", "holes", "--label", "run=7", "-o", "json"];
    let report = ground.gpufleet(folder.path(), &map(&more)).await.json();
    assert_eq!(
        (&report["rows"], &report["batches"], &report["resumed_batches"]),
        (&10_000.into(), &15.into(), &0.into())
    );
    let (read, written) =
        (read_table(&folder.path().join("in.parquet")), read_table(&folder.path().join("out.parquet")));
    let names: Vec<_> = written.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["id", "x", "y", "word", "sum"]);
    for name in ["id", "x", "y", "word"] {
        assert_eq!(written.column_by_name(name), read.column_by_name(name), "{name}");
    }
    let sums = written.column_by_name("sum").unwrap().as_primitive::<types::Float32Type>();
    assert_eq!(sums.null_count(), 0);
    assert!(sums.values().iter().enumerate().all(|(row, sum)| *sum == 3.0 * row as f32 + 1.0));
    ground.check_history(15).await;
    let history = ground.gpufleet(folder.path(), &["history", "--label", "run=7", "-o", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&history.stdout).unwrap().as_array().unwrap().len(), 15, "{history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_killed_again_and_again_writes_an_equal_file() {
    let (ground, _worker) = Ground::with_worker("parquet-killed").await;
    let (whole, killed) = (folder_with_table(), tempfile::tempdir().unwrap());
    // A run remembers the time of its input file, so both runs read the same file.
    let input = whole.path().join("in.parquet");
    let input = input.to_str().unwrap();
    let line = ["map", "--parquet", input, "out.parquet", "--kernel", "saxpy", "--columns", "x,y", "--arg=a=2"];
    let line = [&line[..], &["--batch-rows", "100", "--in-flight", "2", "-o", "json"]].concat();
    ground.gpufleet(whole.path(), &line).await.ok();
    let output = killed.path().join("out.parquet");
    for part in [0, 1, 20, 60] {
        let mut run = ground.start_gpufleet(killed.path(), &line);
        let part = killed.path().join(format!("out.parquet.parts/{part:06}.parquet"));
        poll_until("a part is finished", async || part.exists()).await;
        run.kill().await.unwrap();
        assert!(!output.exists(), "the output appears only when it is complete");
    }
    let ended = ground.gpufleet(killed.path(), &line).await.ok();
    assert!(ended.stderr.contains("continuing after") && ended.stderr.contains("of 100 batches"), "{ended:?}");
    let report = ended.json();
    assert!(report["resumed_batches"].as_u64().unwrap() > 60, "{report}");
    assert!(fs::read(&output).unwrap() == fs::read(whole.path().join("out.parquet")).unwrap(), "the files differ");
    assert!(!killed.path().join("out.parquet.parts").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_continues_only_with_equal_settings() {
    let (ground, worker) = Ground::with_worker("parquet-interrupted").await;
    let folder = folder_with_table();
    let line = map(&["--batch-rows", "100", "--in-flight", "1"]);
    let run = ground.start_gpufleet(folder.path(), &line);
    let part = folder.path().join("out.parquet.parts/000002.parquet");
    poll_until("a part is finished", async || part.exists()).await;
    gpufleet_tests::signal(run.id().unwrap(), libc::SIGINT);
    let ended = run.wait_with_output().await.unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted") && told.contains("run the same command again"), "{told}");
    let other = ground.gpufleet(folder.path(), &[&line[..], &["--fill-null", "0"]].concat()).await;
    assert_eq!(other.code, 3, "{other:?}");
    assert!(other.stderr.contains("the number for nulls was null, and is now 0"), "{other:?}");
    assert!(other.stderr.contains("rm -r ") && other.stderr.contains("out.parquet.parts"), "{other:?}");
    let ended = ground.gpufleet(folder.path(), &line).await;
    assert!(ended.code == 0 && ended.stdout.contains("of them from an earlier run"), "{ended:?}");
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_fails_is_told_with_its_rows() {
    let (ground, _worker) = Ground::with_worker("parquet-failing").await;
    let folder = folder_with_table();
    let ended = ground.gpufleet(folder.path(), &map(&["--batch-rows", "4000", "--device-name", "H999"])).await;
    assert_eq!(ended.code, 4, "{ended:?}");
    for part in ["error: rows 0 to 3999: job ", "requirements_not_met", "hint: "] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    assert!(!folder.path().join("out.parquet").exists());
}

const BLEND: &str = r#"
typedef double Real;
extern "C" __global__ void blend(const Real *price, const long long *day, long long *visits, Real *due, Real rate, size_t rows) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= rows) return;
    due[i] = price[i] * (1 + rate * day[i]);
    visits[i] += 1;
}
"#;

/// Writes a table with doubles, times, integers with a null, and words.
fn write_wide_table(path: &Path) {
    let times = TimestampMillisecondArray::from_iter_values((0..ROWS as i64).map(|row| row % 30)).with_timezone("UTC");
    let visits = (0..ROWS as i64).map(|row| (row != 77).then_some(row << 40));
    let columns: [(&str, ArrayRef); 4] = [
        ("price", Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| 0.1 * row as f64)))),
        ("at", Arc::new(times)),
        ("visits", Arc::new(Int64Array::from_iter(visits))),
        ("word", Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("word {row}"))))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    write(path, &batch, 3_000);
}

const BLEND_LINE: [&str; 9] = [
    "map",
    "--parquet",
    "in.parquet",
    "out.parquet",
    "--source=blend.cu",
    "--kernel=blend",
    "--columns=price,day=at,visits=visits",
    "--rows=rows",
    "--arg=rate=0.25",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_of_a_file_maps_columns_of_64_bits() {
    let (ground, _worker) = Ground::with_worker("parquet-source").await;
    let folder = tempfile::tempdir().unwrap();
    write_wide_table(&folder.path().join("in.parquet"));
    fs::write(folder.path().join("blend.cu"), BLEND).unwrap();
    let more = ["--fill-null=5", "--batch-rows=1700", "--out-columns=due=owed"];
    let ended = ground.gpufleet(folder.path(), &[&BLEND_LINE[..], &more].concat()).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "out.parquet: 10000 rows in 6 batches\n"), "{ended:?}");
    let written = read_table(&folder.path().join("out.parquet"));
    let names: Vec<_> = written.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["price", "at", "visits", "word", "owed"]);
    let owed = written.column_by_name("owed").unwrap().as_primitive::<types::Float64Type>();
    let visits = written.column_by_name("visits").unwrap().as_primitive::<types::Int64Type>();
    for row in 0..ROWS {
        assert_eq!(owed.value(row), 0.1 * row as f64 * (1.0 + 0.25 * (row % 30) as f64), "row {row}");
        assert_eq!(visits.value(row), if row == 77 { 6 } else { ((row as i64) << 40) + 1 }, "row {row}");
    }
    ground.check_history(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_of_a_file_that_does_not_compile_is_shown_with_its_line() {
    let (ground, _worker) = Ground::with_worker("parquet-source-wrong").await;
    let folder = tempfile::tempdir().unwrap();
    write_wide_table(&folder.path().join("in.parquet"));
    fs::write(folder.path().join("blend.cu"), BLEND.replace("visits[i] += 1", "visits[j] += 1")).unwrap();
    let line = [&BLEND_LINE[..], &["--fill-null=5", "--batch-rows=1700"]].concat();
    let ended = ground.gpufleet(folder.path(), &line).await;
    assert_ne!(ended.code, 0, "{ended:?}");
    for part in ["rows 0 to 1699: job ", "blend.cu:7", "visits[j] += 1"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    // A run with another kernel must not continue this one.
    fs::write(folder.path().join("blend.cu"), BLEND).unwrap();
    let ended = ground.gpufleet(folder.path(), &line).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("the source was \"blake3:") && ended.stderr.contains("rm -r "), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_before_anything_is_sent() {
    let ground = Ground::shared("parquet-refused").await;
    let folder = folder_with_table();
    fs::write(folder.path().join("text.parquet"), "text").unwrap();
    let with = |columns: &'static str| {
        ["map", "--parquet", "in.parquet", "out.parquet", "--kernel", "saxpy", "--columns", columns]
    };
    let file = |input: &'static str, output: &'static str| {
        ["map", "--parquet", input, output, "--kernel", "saxpy", "--columns", "x,y"]
    };
    for (line, code, says) in [
        (&with("x,holes")[..], 3, "error: invalid job: arguments.a"),
        (&[&with("x,holes")[..], &["--arg", "a=2"]].concat(), 3, "column holes has nulls"),
        (&[&with("x,word")[..], &["--arg", "a=2"]].concat(), 3, "column word is Utf8"),
        (&[&with("x,z")[..], &["--arg", "a=2"]].concat(), 3, "the file has no column z"),
        (&[&with("x,y")[..], &["--arg", "b=2"]].concat(), 3, "arguments.a"),
        (&[&file("in.parquet", "in.parquet")[..], &["--arg", "a=2"]].concat(), 3, "would be read and written"),
        (&[&file("text.parquet", "out.parquet")[..], &["--arg", "a=2"]].concat(), 3, "failed to read text.parquet"),
        (&[&file("in.parquet", "none/out.parquet")[..], &["--arg", "a=2"]].concat(), 3, "its folder does not exist"),
        (&["map", "--parquet", "in.parquet", "--kernel", "saxpy", "--columns", "x,y"], 2, "2 values required"),
    ] {
        let ended = ground.gpufleet(folder.path(), line).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{line:?}: {ended:?}");
        assert!(ended.stderr.contains(says), "{says}: {ended:?}");
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing was written: {names:?}");
    ground.poll_no_reply_queue().await;
}

/// Returns the commands in the page's code blocks. A line that ends in a backslash continues.
fn commands_of_the_guide() -> Vec<Vec<String>> {
    let page = include_str!("../../docs/src/guides/parquet.md").replace("\\\n", " ");
    let lines = page.lines().filter_map(|line| line.strip_prefix("$ gpufleet "));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Returns the CUDA C of the page.
fn source_of_the_guide() -> &'static str {
    let page = include_str!("../../docs/src/guides/parquet.md");
    let (_, code) = page.split_once("```cpp\n").unwrap();
    code.split_once("```").unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_guide_run() {
    let (ground, _worker) = Ground::with_worker("parquet-guide").await;
    let folder = tempfile::tempdir().unwrap();
    let numbers = || Arc::new(Float32Array::from_iter_values((0..ROWS).map(|row| row as f32))) as ArrayRef;
    let days = Arc::new(Int32Array::from_iter_values(0..ROWS as i32)) as ArrayRef;
    let orders = RecordBatch::try_from_iter([("price", numbers()), ("fee", numbers()), ("days", days)]).unwrap();
    write(&folder.path().join("orders.parquet"), &orders, ROWS);
    let commands = commands_of_the_guide();
    assert_eq!(commands.len(), 3);
    fs::write(folder.path().join("late_fee.cu"), source_of_the_guide()).unwrap();
    for command in commands {
        let line: Vec<&str> = command.iter().map(String::as_str).collect();
        let ended = ground.gpufleet(folder.path(), &line).await;
        let told = format!("{}: 10000 rows in 1 batch\n", line[3]);
        assert_eq!((ended.code, &ended.stdout), (0, &told), "{ended:?}");
    }
    let column = |file: &str, name: &str, row: usize| {
        let table = read_table(&folder.path().join(file));
        table.column_by_name(name).unwrap().as_primitive::<types::Float32Type>().value(row)
    };
    let late = read_table(&folder.path().join("late.parquet"));
    let due = late.column_by_name("due").unwrap().as_primitive::<types::Float64Type>();
    assert_eq!((due.value(30), due.value(31)), (30.0, 31.0 + 0.5));
    assert_eq!((column("totals.parquet", "total", 5), column("fees.parquet", "fee", 5)), (15.0, 2.5));
}
