//! Runs every kernel of the catalog on its samples, and compares the outputs with those of the CPU reference and the
//! emulator.

use gpufleet_kernels::{
    Tolerance, catalog,
    compare::{Difference, Expected, Mismatch, compare},
    resolve,
    sample::{Sample, samples},
};

use super::{
    Checks, SelfTestError,
    runner::{Outcome, Runner},
};
use crate::executor::OutputBytes;

pub(super) async fn check(
    runner: &mut Runner,
    mut emulator: Option<&mut Runner>,
    checks: &mut Checks,
) -> Result<(), SelfTestError> {
    let last = if emulator.is_some() { "  emulator difference" } else { "" };
    println!("\n{:<18} {:>6} {:>12}  {:<20}{last}", "kernel", "", "time", "CPU difference");
    for kernel in catalog().iter() {
        for sample in samples(&kernel.name) {
            let task = resolve(sample.task.clone()).expect("the catalog's own samples are complete");
            let outcome = runner.run(&task).await;
            let (outputs, time) = match outcome {
                Outcome::Done { outputs, timings } => (outputs, timings.kernel_us()),
                Outcome::Failed(failure) => {
                    println!("{:<18} {:>6}  {}", kernel.name, checks.record(false), failure.message);
                    continue;
                }
                Outcome::Lost(reason) => {
                    println!("{:<18} {:>6}  {reason}", kernel.name, checks.record(false));
                    runner.replace().await?;
                    continue;
                }
            };
            let right = differences(&sample, &outputs);
            let word = checks.record(right.is_ok());
            let to_cpu = right.map_or_else(|mismatch| mismatch.to_string(), describe);
            let to_emulator = match emulator.as_mut() {
                Some(emulator) => match emulator.run(&task).await {
                    Outcome::Done { outputs: theirs, .. } => describe(distance(&outputs, &theirs)),
                    Outcome::Failed(failure) => failure.message,
                    Outcome::Lost(reason) => {
                        emulator.replace().await?;
                        reason
                    }
                },
                None => String::new(),
            };
            println!("{:<18} {word:>6} {time:>9} µs  {to_cpu:<20}  {to_emulator}", kernel.name);
        }
    }
    Ok(())
}

/// Returns the largest difference of all outputs from the expected values.
fn differences(sample: &Sample, outputs: &[OutputBytes]) -> Result<Difference, Mismatch> {
    let mut all = Difference::default();
    for expected in &sample.expected {
        let got = outputs.iter().find(|output| output.name == expected.name).map_or(&[][..], |output| &*output.bytes);
        all = larger(all, compare(expected, got)?);
    }
    Ok(all)
}

/// Returns the largest difference between two devices' outputs, without a tolerance.
fn distance(ours: &[OutputBytes], theirs: &[OutputBytes]) -> Difference {
    let anything = Tolerance { ulp: u64::MAX, rel: 0.0, abs: 0.0 };
    ours.iter().zip(theirs).fold(Difference::default(), |all, (ours, theirs)| {
        let expected = Expected {
            name: theirs.name.clone(),
            dtype: theirs.dtype,
            shape: theirs.shape.clone(),
            bytes: theirs.bytes.to_vec(),
            tolerance: anything,
        };
        larger(all, compare(&expected, &ours.bytes).unwrap_or(Difference { max_ulp: u64::MAX, max_abs: f64::NAN }))
    })
}

fn larger(a: Difference, b: Difference) -> Difference {
    Difference { max_ulp: a.max_ulp.max(b.max_ulp), max_abs: a.max_abs.max(b.max_abs) }
}

fn describe(difference: Difference) -> String {
    match difference.max_ulp {
        0 => "equal".to_owned(),
        u64::MAX => "too large".to_owned(),
        ulp => format!("{ulp} ulp, {:.2e}", difference.max_abs),
    }
}
