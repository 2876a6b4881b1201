//! `gpufleet-bench parquet`: runs `gpufleet map` over a large Parquet file, next to the same computation in this process, and once more
//! while it is killed several times. The memory of the command is bounded, and the files of both runs must be equal.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray, cast::AsArray as _, types};
use gpufleet_local::{Cuda, LocalFleet, programs};
use parquet::arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::{
    command_run::{POLL, RUN_DEADLINE, Run},
    ground,
    table::table,
};

const PEAK_BYTES_MAX: u64 = 512 << 20;
/// The number of rows in a batch, which is that of the command.
const BATCH_ROWS: usize = 1 << 17;
const FACTOR: f32 = 2.5;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rows of the file
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1_000_000..))]
    rows: u32,
    /// How often the second run is killed
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    kills: u32,
    /// The worker's device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("in.parquet");
    eprintln!("write {} rows …", options.rows);
    write_input(&input, options.rows)?;
    let builder = LocalFleet::builder().label("bench").workers(1).cuda(options.cuda.clone());
    let measured = ground::on_fleet(&services, builder, async |fleet| {
        let input_mib = fs::metadata(&input)?.len() >> 20;
        println!("{}\nworker on {:?}, {} rows in {input_mib} MiB\n", machine.line(), options.cuda, options.rows);
        measure(options, fleet, folder.path()).await
    });
    Box::pin(measured).await
}

async fn measure(options: &Options, fleet: &LocalFleet, folder: &Path) -> anyhow::Result<()> {
    eprintln!("compute here …");
    let started = Instant::now();
    compute_here(&folder.join("in.parquet"), &folder.join("here.parquet"))?;
    let here = started.elapsed().as_secs_f64();
    eprintln!("map with the fleet …");
    let whole = Run::to_end(start(fleet, folder, "whole.parquet")?).await?;
    check(&folder.join("whole.parquet"), options.rows)?;
    let batches = options.rows.div_ceil(BATCH_ROWS as u32);
    for kill in 1..=options.kills {
        let part = kill * batches / (options.kills + 1);
        eprintln!("kill the run at batch {part} of {batches} …");
        let part = folder.join(format!("killed.parquet.parts/{part:06}.parquet"));
        kill_at(start(fleet, folder, "killed.parquet")?, &part).await?;
    }
    let last = Run::to_end(start(fleet, folder, "killed.parquet")?).await?;
    let is_equal = fs::read(folder.join("whole.parquet"))? == fs::read(folder.join("killed.parquet"))?;
    let mut table = table(["run", "seconds", "million rows/s", "peak MiB"]);
    let rate = |seconds: f64| format!("{:.2}", f64::from(options.rows) / seconds / 1e6);
    let mib = |run: &Run| (run.peak_bytes >> 20).to_string();
    table.add_row(["in this process", &format!("{here:.1}"), &rate(here), "-"]);
    table.add_row(["gpufleet map", &format!("{:.1}", whole.seconds), &rate(whole.seconds), &mib(&whole)]);
    table.add_row([&format!("after {} kills", options.kills), &format!("{:.1}", last.seconds), "-", &mib(&last)]);
    println!("{table}\n");
    ensure!(is_equal, "the file of the killed run differs from that of the other");
    let peak = whole.peak_bytes.max(last.peak_bytes);
    println!("the files are equal; the bar of {} MiB: {}", PEAK_BYTES_MAX >> 20, verdict(peak));
    Ok(())
}

fn verdict(peak_bytes: u64) -> &'static str {
    if peak_bytes <= PEAK_BYTES_MAX { "kept" } else { "missed" }
}

/// Returns rows with an id, two columns for saxpy, and a word.
fn batch_of(rows: std::ops::Range<i64>) -> anyhow::Result<RecordBatch> {
    let words = rows.clone().map(|row| format!("order {}", row % 1000));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        ("x", Arc::new(Float32Array::from_iter_values(rows.clone().map(|row| row as f32)))),
        ("y", Arc::new(Float32Array::from_iter_values(rows.map(|row| (row % 7) as f32)))),
        ("word", Arc::new(StringArray::from_iter_values(words))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Writes the input in row groups of the writer's default size.
fn write_input(path: &Path, rows: u32) -> anyhow::Result<()> {
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch_of(0..0)?.schema(), None)?;
    for start in (0..i64::from(rows)).step_by(BATCH_ROWS) {
        writer.write(&batch_of(start..i64::from(rows).min(start + BATCH_ROWS as i64))?)?;
    }
    writer.close()?;
    Ok(())
}

/// Computes what the kernel computes, in one thread.
fn compute_here(input: &Path, output: &Path) -> anyhow::Result<()> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(input)?)?.with_batch_size(BATCH_ROWS).build()?;
    let mut writer = None;
    for batch in reader {
        let batch = batch?;
        let (x, y) = (floats(&batch, "x")?, floats(&batch, "y")?);
        let sums = x.iter().zip(y).map(|(x, y)| FACTOR.mul_add(*x, *y));
        let sums: ArrayRef = Arc::new(Float32Array::from_iter_values(sums));
        let names = batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        let columns =
            names.iter().map(String::as_str).chain(["sum"]).zip(batch.columns().iter().cloned().chain([sums]));
        let mapped = RecordBatch::try_from_iter(columns)?;
        if writer.is_none() {
            writer = Some(ArrowWriter::try_new(File::create(output)?, mapped.schema(), None)?);
        }
        writer.as_mut().context("it was made above")?.write(&mapped)?;
    }
    writer.context("the file has rows")?.close()?;
    Ok(())
}

fn floats<'a>(batch: &'a RecordBatch, column: &str) -> anyhow::Result<&'a [f32]> {
    let column = batch.column_by_name(column).with_context(|| format!("the file has no column {column}"))?;
    Ok(column.as_primitive::<types::Float32Type>().values())
}

/// Checks every row of the result.
fn check(output: &Path, rows: u32) -> anyhow::Result<()> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(output)?)?.with_batch_size(BATCH_ROWS).build()?;
    let mut row = 0_i64;
    for batch in reader {
        for sum in floats(&batch?, "sum")? {
            ensure!(*sum == FACTOR.mul_add(row as f32, (row % 7) as f32), "row {row} is {sum}");
            row += 1;
        }
    }
    ensure!(row == i64::from(rows), "there are {row} rows");
    Ok(())
}

fn start(fleet: &LocalFleet, folder: &Path, output: &str) -> anyhow::Result<Child> {
    let mut command = Command::new(programs::ours(None, "gpufleet")?);
    command.args(["map", "--parquet", "in.parquet", output, "--kernel", "saxpy", "--columns", "x,y"]);
    command.args(["--out-columns", "sum", "--arg", &format!("a={FACTOR}"), "--batch-rows", &BATCH_ROWS.to_string()]);
    command.current_dir(folder).env("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn()?)
}

async fn kill_at(mut run: Child, part: &Path) -> anyhow::Result<()> {
    let reached = async {
        while !part.exists() {
            if let Some(status) = run.try_wait()? {
                anyhow::bail!("the command ended with {status} before {}", part.display());
            }
            sleep(POLL).await;
        }
        Ok(())
    };
    timeout(RUN_DEADLINE, reached).await.context("the batch was not finished in time")??;
    run.kill().await.context("failed to kill the command")
}
