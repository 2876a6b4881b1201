//! Gives each metric of a program its name.

use prometheus_client::{
    encoding::text,
    registry::{Metric, Registry, Unit},
};

const PREFIX: &str = "gpufleet";

/// The metrics of a program by their names, which start with `gpufleet_`. Of counters, the library writes `_total` after the name.
#[derive(Debug)]
pub struct Names(Registry);

impl Names {
    /// Names a metric without a unit.
    pub fn plain<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.named(name, help, M::default())
    }

    /// Names a metric that does not start out as its default, such as a histogram with its buckets.
    pub fn named<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    /// Names a number of bytes. The unit ends the name.
    pub fn bytes<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.with_unit(name, help, Unit::Bytes, M::default())
    }

    /// Names a time in seconds. The unit ends the name.
    pub fn seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.with_unit(name, help, Unit::Seconds, metric)
    }

    /// Returns all metrics in OpenMetrics' text form.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.0).expect("a string takes all that is written, and no gauge is out of range");
        text
    }

    fn with_unit<M: Metric + Clone>(&mut self, name: &str, help: &str, unit: Unit, metric: M) -> M {
        self.0.register_with_unit(name, help, unit, metric.clone());
        metric
    }
}

impl Default for Names {
    fn default() -> Self {
        Self(Registry::with_prefix(PREFIX))
    }
}
