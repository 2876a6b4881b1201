//! A description of the machine, without which a figure means nothing.

use std::fs;

use gpufleet_local::Services;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub kernel: String,
    pub broker: String,
    pub optimised: bool,
    /// The load average of the last minute before anything was started. Other work on the machine makes all figures
    /// worse.
    pub load_before: f64,
}

/// Whether this program, and so the fleet's programs, was built with optimisation.
pub const OPTIMISED: bool = !cfg!(debug_assertions);

impl Machine {
    pub fn look(broker: String, load_before: f64) -> Self {
        let cpu = read("/proc/cpuinfo").as_deref().and_then(cpu_model).unwrap_or("unknown").to_owned();
        let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { cores, cpu, kernel, broker, optimised: OPTIMISED, load_before }
    }

    /// Formats the description as one line for people.
    pub fn line(&self) -> String {
        let build =
            if self.optimised { "optimised build" } else { "BUILD WITHOUT OPTIMISATION: the figures mean nothing" };
        let Self { cores, cpu, kernel, broker, load_before, .. } = self;
        format!("{cores} cores, {cpu}, Linux {kernel}, {broker}, {build}, load before {load_before:.1}")
    }
}

/// Returns the load average of the last minute.
pub fn load() -> f64 {
    let text = read("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

pub async fn broker_version(services: &Services) -> anyhow::Result<String> {
    let version = services.broker().eval("list_to_binary(rabbit_misc:version()).").await?;
    let number = version.trim_matches(|c: char| !c.is_ascii_digit());
    Ok(format!("RabbitMQ {number}"))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Returns the CPU's model. `None` on Arm, where the kernel does not list a name.
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_called_by_its_first_name() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU 9\nmodel name\t: Other\n"), Some("Fast CPU 9"));
        assert_eq!(cpu_model("processor : 0"), None);
    }
}
