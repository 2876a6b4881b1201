//! `cargo xtask bench-comparison`: measures gpufleet beside Celery, Ray and Slurm.

use gpufleet_local::setup::Part;

use crate::{bench, setup, terminal::Terminal};

/// Runs the comparison. On a machine without Slurm's packages, the other systems are measured, and the table says so.
pub async fn run(options: &bench::Options) -> anyhow::Result<()> {
    if let Err(error) = setup::ensure(&[Part::Slurm], &Terminal::new()) {
        eprintln!("Slurm will not be measured: {error:#}");
    }
    bench::run("comparison", &[Part::Services, Part::Comparison], options).await
}
