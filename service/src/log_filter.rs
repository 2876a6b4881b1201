//! The filter of log lines, which every program reads from the same variable.

use gpufleet_transport::LOG_DIRECTIVE;
use tracing_subscriber::EnvFilter;

/// The variable with the filter, such as `info` or `gpufleet_worker=debug`.
pub const LOG: &str = "GPUFLEET_LOG";

/// Returns the filter in [`LOG`], or else `default`. Directives that can't be read are reported on stderr and left out.
pub fn log_filter(default: &str) -> EnvFilter {
    let typed = std::env::var(LOG).ok().filter(|typed| !typed.trim().is_empty());
    of(typed.as_deref().unwrap_or(default))
}

fn of(directives: &str) -> EnvFilter {
    let silenced = LOG_DIRECTIVE.parse().expect("the constant is a well-formed directive");
    EnvFilter::builder().parse_lossy(directives).add_directive(silenced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_silences_what_the_transport_handles() {
        for directives in ["debug", "off", "gpufleet_worker=trace,nonsense=="] {
            assert!(of(directives).to_string().contains(LOG_DIRECTIVE), "{directives}");
        }
    }
}
