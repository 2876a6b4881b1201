//! `cargo xtask setup`: installs programs that the machine lacks.

use anyhow::Context as _;
use gpufleet_local::setup::{self, Part};

use crate::{console, terminal::Terminal};

pub async fn run() -> anyhow::Result<()> {
    let installed = ensure(&Part::ALL, &Terminal::new())?;
    if installed.is_empty() {
        eprintln!("Everything is there: RabbitMQ, Postgres, NVRTC, pika, the tools of the Python package, Chromium.");
    }
    if console::has_node() {
        return console::install().await;
    }
    eprintln!("Node.js is not here. Only work on the web application of the console needs it.");
    Ok(())
}

/// Installs those of these parts that are missing. If none is missing, it takes milliseconds.
pub fn ensure(parts: &[Part], terminal: &Terminal) -> anyhow::Result<Vec<Part>> {
    let installed = setup::install(parts, terminal.steps()).context("failed to set this machine up")?;
    if installed.contains(&Part::Services) {
        eprintln!(
            "The packages' own services were not started. To keep them from starting with the machine:\n    \
             systemctl disable rabbitmq-server postgresql"
        );
    }
    Ok(installed)
}
