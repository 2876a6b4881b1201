//! The report for people.

use std::fmt::Write as _;
use std::fs;

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::clock::Time;
use crate::latency::{LINES, Latency};
use crate::rounds::{Result, Subject};
use crate::spread::Spread;

/// Targets: mean and worst ratio of the emulator's time to that of plain Rust, and speedup with two threads. The report
/// names those that are missed.
const MEAN_MAX: f64 = 1.7;
const WORST_MAX: f64 = 5.0;
const TWO_THREADS_MIN: f64 = 1.8;
/// Target: speedup of a tensor core product of halves over the tiled product of floats.
const HALVES_MIN: f64 = 2.0;
const LAUNCH_US_MAX: f64 = 20.0;
const LOAD_MS_MAX: f64 = 1.0;

/// The products of halves, which the means exclude: plain Rust has no halves and spends most of its time decoding them.
const HALVES: [&str; 2] = ["matmul_mma", "matmul_wmma"];

const HEAD: [&str; 9] = [
    "kernel",
    "size",
    "scalar ms",
    "emulator ms",
    "ratio",
    "ratio by wall",
    "vectorised ms",
    "two threads",
    "portable ratio",
];

/// Returns the load average of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

pub fn render(results: &[Result], latency: &Latency, rounds: u32, load_before: f64) -> String {
    let mut text = header(rounds, load_before);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEAD);
    for result in results {
        table.add_row(row(result));
    }
    let _ = writeln!(text, "{table}\n");
    for (name, value, aim, is_met) in figures(results, latency) {
        let missed = if is_met { "" } else { "  MISSED" };
        let _ = writeln!(text, "{name}: {value} (aim: {aim}){missed}");
    }
    for name in HALVES {
        let Some(faster) = beside_floats(results, name) else { continue };
        let missed = if faster.median >= HALVES_MIN { "" } else { "  MISSED" };
        let _ = writeln!(text, "{name} beside matmul_tiled: {faster} x as fast (aim: at least {HALVES_MIN} x){missed}");
    }
    text
}

/// Returns the speedup over the product of floats. Both products have matrices of equal size.
fn beside_floats(results: &[Result], name: &str) -> Option<Spread> {
    let times = |name| results.iter().find(|result| result.name == name).map(|result| result.times(Subject::One));
    let pairs = times("matmul_tiled")?.iter().zip(times(name)?);
    Some(Spread::of(pairs.map(|(floats, halves)| floats.cpu / halves.cpu)))
}

fn header(rounds: u32, load_before: f64) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown", |(_, name)| name.trim());
    let build = if cfg!(debug_assertions) { "BUILD WITHOUT OPTIMISATION" } else { "optimised build" };
    format!(
        "{cores} cores, {model}, {build}, load before {load_before:.1}; {rounds} rounds, medians (lowest–highest)\n\
         Times are CPU time of one thread; \"two threads\" compares wall times.\n\n"
    )
}

fn ratios(result: &Result, over: Subject, under: Subject, of: impl Fn(&Time) -> f64) -> Spread {
    let pairs = result.times(over).iter().zip(result.times(under));
    Spread::of(pairs.map(|(over, under)| of(over) / of(under)))
}

fn cpu(time: &Time) -> f64 {
    time.cpu
}

fn wall(time: &Time) -> f64 {
    time.wall
}

fn milliseconds(result: &Result, subject: Subject) -> Spread {
    Spread::of(result.times(subject).iter().map(|time| time.cpu * 1e3))
}

fn row(result: &Result) -> Vec<Cell> {
    let figures = [
        milliseconds(result, Subject::Scalar).to_string(),
        milliseconds(result, Subject::One).to_string(),
        ratios(result, Subject::One, Subject::Scalar, cpu).to_string(),
        format!("{:.2}", ratios(result, Subject::One, Subject::Scalar, wall).median),
        format!("{:.2}", milliseconds(result, Subject::Vectorised).median),
        format!("{:.2} x", ratios(result, Subject::One, Subject::Two, wall).median),
        format!("{:.1}", ratios(result, Subject::Portable, Subject::Scalar, cpu).median),
    ];
    let names = [result.name, result.size.as_str()].into_iter().map(Cell::new);
    names.chain(figures.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right))).collect()
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

type Figure = (&'static str, String, String, bool);

fn figures(all: &[Result], latency: &Latency) -> Vec<Figure> {
    let results: Vec<&Result> = all.iter().filter(|result| !HALVES.contains(&result.name)).collect();
    let mean_of = |over, under, of: fn(&Time) -> f64| {
        geometric_mean(results.iter().map(|result| ratios(result, over, under, of).median))
    };
    let ratio = |result: &Result| ratios(result, Subject::One, Subject::Scalar, cpu).median;
    let worst =
        results.iter().map(|result| (ratio(result), result.name)).fold((0.0, ""), |a, b| if a.0 > b.0 { a } else { b });
    let mean = mean_of(Subject::One, Subject::Scalar, cpu);
    let speed_up = mean_of(Subject::One, Subject::Two, wall);
    let portable = mean_of(Subject::Portable, Subject::Scalar, cpu);
    let vectorised = mean_of(Subject::One, Subject::Vectorised, cpu);
    vec![
        ("ratio, geometric mean", format!("{mean:.2}"), format!("at most {MEAN_MAX}"), mean <= MEAN_MAX),
        ("ratio, worst", format!("{:.2}, {}", worst.0, worst.1), format!("at most {WORST_MAX}"), worst.0 <= WORST_MAX),
        ("ratio to vectorised Rust, geometric mean", format!("{vectorised:.2}"), "none".to_owned(), true),
        ("portable ratio, geometric mean", format!("{portable:.2}"), "none".to_owned(), true),
        (
            "two threads, geometric mean",
            format!("{speed_up:.2} x"),
            format!("at least {TWO_THREADS_MIN} x"),
            speed_up >= TWO_THREADS_MIN,
        ),
        (
            "launch of one warp, bare",
            format!("{} µs", latency.bare_us),
            format!("at most {LAUNCH_US_MAX} µs"),
            latency.bare_us.median <= LAUNCH_US_MAX,
        ),
        (
            "launch of one warp, driver API",
            format!("{} µs", latency.driver_us),
            format!("at most {LAUNCH_US_MAX} µs"),
            latency.driver_us.median <= LAUNCH_US_MAX,
        ),
        (
            "module load",
            format!("{} ms for {LINES} lines (of {})", latency.load_ms, latency.lines),
            format!("at most {LOAD_MS_MAX} ms"),
            latency.load_ms.median <= LOAD_MS_MAX,
        ),
    ]
}
