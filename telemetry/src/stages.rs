//! How long jobs take, stage by stage: a histogram for each pool and stage, from the timings that every attempt reports.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, RwLock},
};

use gpufleet_schema::{AttemptFinished, AttemptState, JobId, PoolName, host_program, session};
use prometheus_client::{
    encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder},
    metrics::{exemplar::HistogramWithExemplars, family::Family},
};

use crate::Names;

/// The stages of a job in their order, as the label `stage` names them. The last is the time from submission to the final outcome.
pub const STAGES: [&str; 9] =
    ["queue", "wait", "fetch", "compile", "load", "copy_in", "kernel", "copy_out", "end_to_end"];
/// Maximum number of pools that have series of their own. Workers name pools, so there are few; the bound keeps a wrong configuration from
/// filling Prometheus.
pub const POOLS_MAX: usize = 64;
/// The label of the pools beyond [`POOLS_MAX`].
const OTHER_POOLS: &str = "other";

/// The upper bounds of the buckets in seconds. Tiny jobs take a tenth of a millisecond, and jobs wait for hours.
const BUCKETS: [f64; 13] = [0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0];
const MICROSECONDS: f64 = 1e-6;

/// The histograms of all pools.
#[derive(Debug)]
pub struct JobStages {
    family: Family<StageLabels, StageHistogram, fn() -> StageHistogram>,
    pools: RwLock<HashMap<PoolName, Arc<PoolStages>>>,
}

/// The job that an observation came from. Prometheus shows it beside a bucket, and Grafana links it to the job's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobExemplar {
    job_id: JobId,
    /// Only if its producer had the trace recorded.
    trace_id: Option<u128>,
}

type StageHistogram = HistogramWithExemplars<JobExemplar>;
type PoolStages = [StageHistogram; STAGES.len()];

#[derive(Debug, Clone, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
struct StageLabels {
    pool: String,
    stage: &'static str,
}

impl JobStages {
    /// Names the histograms. These pools have their series from the start.
    pub fn named<'a>(names: &mut Names, name: &str, help: &str, pools: impl IntoIterator<Item = &'a PoolName>) -> Self {
        let family = Family::new_with_constructor((|| StageHistogram::new(BUCKETS.into_iter())) as fn() -> _);
        let stages = Self { family: names.seconds(name, help, family), pools: RwLock::default() };
        for pool in pools {
            stages.of_pool(pool);
        }
        stages
    }

    /// Observes the stages that an attempt went through. An attempt that reached no device has only its time in the queue, and only the
    /// last attempt of a job has a time from end to end. Sessions and host programs are left out, because they last as long
    /// as people's programs.
    pub fn observe(&self, finished: &AttemptFinished) {
        // Old workers leave the description out.
        let counts = |program: &str| program != session::KIND && program != host_program::KIND;
        let Some(job) = finished.job.as_deref().filter(|job| counts(&job.program)) else { return };
        let timings = &finished.timings;
        let is_over = finished.state != AttemptState::Lost;
        let whole_us = job.submitted_ms.filter(|_| is_over).map(|submitted| {
            // The clocks of producer and worker may differ.
            u64::try_from(finished.at_ms.saturating_sub(submitted)).unwrap_or(0).saturating_mul(1000)
        });
        // A stage that took no time did not happen: the program was compiled before, or there was nothing to copy.
        let happened = |us: u64| Some(us).filter(|us| *us > 0);
        let stages = [
            Some(timings.queue_us),
            happened(timings.wait_us),
            happened(timings.fetch_us),
            happened(timings.compile_us),
            happened(timings.load_us),
            happened(timings.copy_in_us),
            happened(timings.kernel_us()),
            happened(timings.copy_out_us),
            whole_us,
        ];
        let histograms = self.of_pool(&job.pool);
        let trace_id = job.traceparent.filter(|context| context.is_sampled()).map(|context| context.trace_id);
        for (histogram, us) in histograms.iter().zip(stages) {
            if let Some(us) = us {
                let exemplar = JobExemplar { job_id: finished.job_id, trace_id };
                histogram.observe(us as f64 * MICROSECONDS, Some(exemplar), None);
            }
        }
    }

    fn of_pool(&self, pool: &PoolName) -> Arc<PoolStages> {
        const UNBROKEN: &str = "no panic happens under this lock";
        if let Some(stages) = self.pools.read().expect(UNBROKEN).get(pool) {
            return Arc::clone(stages);
        }
        let mut pools = self.pools.write().expect(UNBROKEN);
        if pools.len() >= POOLS_MAX {
            // The series of the others exist once and are shared.
            return Arc::new(self.series(OTHER_POOLS));
        }
        Arc::clone(pools.entry(pool.clone()).or_insert_with(|| Arc::new(self.series(pool.as_str()))))
    }

    fn series(&self, pool: &str) -> PoolStages {
        STAGES.map(|stage| self.family.get_or_create_owned(&StageLabels { pool: pool.to_owned(), stage }))
    }
}

impl EncodeLabelSet for JobExemplar {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        ("job_id", self.job_id.to_string()).encode(encoder.encode_label())?;
        match self.trace_id {
            Some(trace_id) => ("trace_id", format!("{trace_id:032x}")).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gpufleet_schema::{JobInfo, Priority, Program, Task, Timings, TraceContext};

    use super::*;

    fn finished(pool: &str, timings: Timings) -> AttemptFinished {
        let mut task = Task::new(Program::Catalog("saxpy".to_owned()));
        task.submitted_ms = Some(1_000);
        let job = JobInfo::of(&task, pool.parse().unwrap(), Priority::Normal, None);
        AttemptFinished {
            device: Some(0),
            started_ms: Some(3_000),
            timings,
            job: Some(Box::new(job)),
            ..AttemptFinished::new(task.job_id, 1, "w".parse().unwrap(), 3_500, AttemptState::Succeeded)
        }
    }

    /// The sums of the stages that were observed.
    fn sums(names: &Names) -> BTreeMap<String, f64> {
        let text = names.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("gpufleet_job_stage_seconds_"));
        let lines: Vec<_> = lines.map(|line| line.split_once(' ').unwrap()).collect();
        let is_observed =
            |labels: &str| lines.iter().any(|(name, value)| *name == format!("count{labels}") && *value != "0");
        let sums = lines.iter().filter_map(|(name, value)| Some((name.strip_prefix("sum")?, value)));
        sums.filter(|(labels, _)| is_observed(labels))
            .map(|(labels, value)| (labels.to_owned(), value.parse().unwrap()))
            .collect()
    }

    fn stages() -> (Names, JobStages) {
        let mut names = Names::default();
        let stages = JobStages::named(&mut names, "job_stage", "Times", []);
        (names, stages)
    }

    #[test]
    fn an_attempt_is_observed_in_the_stages_that_it_went_through() {
        let (names, stages) = stages();
        let timings =
            Timings { queue_us: 2_000_000, load_us: 1_000, launches_us: vec![250, 750], ..Timings::default() };
        let one = finished("default", timings);
        stages.observe(&one);
        let label = |stage: &str| format!("{{pool=\"default\",stage=\"{stage}\"}}");
        let expected = [("end_to_end", 2.5), ("kernel", 0.001), ("load", 0.001), ("queue", 2.0)];
        assert_eq!(sums(&names), expected.map(|(stage, sum)| (label(stage), sum)).into());
        let exemplar = format!("# {{job_id=\"{}\"}} 2.5", one.job_id);
        assert!(names.text().contains(&exemplar), "{}", names.text());
        let mut traced = finished("default", Timings::default());
        let context = Some(TraceContext::new(0xabc, 1, true));
        traced.job.as_mut().unwrap().traceparent = context;
        stages.observe(&traced);
        let exemplar = format!("# {{job_id=\"{}\",trace_id=\"{:032x}\"}} 2.5", traced.job_id, 0xabc);
        assert!(names.text().contains(&exemplar), "{}", names.text());
    }

    #[test]
    fn a_lost_attempt_has_no_time_from_end_to_end_and_one_before_its_submission_takes_none() {
        let (names, stages) = stages();
        stages.observe(&AttemptFinished { state: AttemptState::Lost, ..finished("default", Timings::default()) });
        assert_eq!(sums(&names).len(), 1, "only the queue");
        stages.observe(&AttemptFinished { at_ms: 10, ..finished("early", Timings::default()) });
        assert_eq!(sums(&names)["{pool=\"early\",stage=\"end_to_end\"}"], 0.0);
    }

    #[test]
    fn pools_without_end_share_their_series() {
        let (names, stages) = stages();
        for index in 0..POOLS_MAX + 10 {
            stages.observe(&finished(&format!("pool-{index}"), Timings::default()));
        }
        let text = names.text();
        let pools = text.lines().filter(|line| line.contains("_count{") && line.contains("stage=\"queue\""));
        assert_eq!(pools.count(), POOLS_MAX + 1);
        assert!(text.contains("gpufleet_job_stage_seconds_count{pool=\"other\",stage=\"queue\"} 10\n"), "{text}");
    }
}
