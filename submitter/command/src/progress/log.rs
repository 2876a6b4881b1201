//! Lines about the progress for a log, where no line can be drawn anew.

use std::time::{Duration, Instant};

use super::line::Standing;

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct ProgressLog {
    /// When there was a line, or when the wait began.
    at: Instant,
    reached: String,
}

impl ProgressLog {
    pub fn new(now: Instant) -> Self {
        Self { at: now, reached: String::new() }
    }

    /// The line to write. `None` if there was one a moment ago, or if the job has not come further.
    pub fn line(&mut self, standing: &Standing, now: Instant) -> Option<String> {
        if now.duration_since(self.at) < EVERY {
            return None;
        }
        let (line, reached) = standing.log_line();
        (reached != self.reached).then(|| {
            *self = Self { at: now, reached };
            line
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpufleet::schema::{Count, Progress};

    use super::*;
    use crate::progress::line::tests::progress;

    #[test]
    fn there_is_a_line_every_ten_seconds_if_the_job_has_come_further() {
        let start = Instant::now();
        let mut log = ProgressLog::new(start);
        let mut line_at = |seconds, done| {
            let progress = Progress { launches: Some(Count::of(done, 1000)), ..progress() };
            log.line(&Standing::after(None, Arc::new(progress)).unwrap(), start + Duration::from_secs(seconds))
        };
        assert_eq!(line_at(9, 312), None);
        let first = "job 01990f3e-0000-7000-8000-000000000001: kernels 312/1000 launches · 41 s · about 90 s left";
        assert_eq!(line_at(10, 312).as_deref(), Some(first));
        assert_eq!(line_at(19, 313), None);
        assert_eq!(line_at(21, 312), None);
        assert!(line_at(22, 313).unwrap().contains("313/1000"));
    }
}
