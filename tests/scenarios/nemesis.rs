//! Every job has one correct outcome while faults strike in a random order, which a seed decides.
//! (faults 1 to 8, 10, 11, 24, 37, 38, 39 and 44, together)
//!
//! The test prints the seed and each fault. `GPUFLEET_NEMESIS_SEED=N` runs only that seed.

use std::time::Duration;

use fastrand::Rng;
use gpufleet::Job;
use gpufleet_local::Signal;
use gpufleet_schema::{AttemptState, JobId};
use gpufleet_tests::{ConfirmedJob, Ground, Proxy, Silence, TestWorker, WAIT, busy, kernels};

const SEED_VARIABLE: &str = "GPUFLEET_NEMESIS_SEED";
/// The number of faults of each seed. All of them differ.
const ROUNDS: usize = 6;
const JOBS_EACH: usize = 12;
/// The maximum number of attempts: enough that no job is dead-lettered because traps of other jobs kill its executor.
const ATTEMPTS_MAX: u32 = 20;

#[derive(Debug, Clone, Copy)]
enum Fault {
    WorkerKilled,
    /// The worker dies at this failpoint. Only debug builds have failpoints.
    WorkerDies(&'static str),
    WorkerFrozen,
    WorkerDrained,
    ExecutorKilled,
    LinkCut,
    LinkCutInTheMiddle,
    LinkHalfOpen(Silence),
    LinkSlow,
    BrokerKilled,
    BrokerFrozen,
    MemoryAlarm,
    RecorderKilled,
    PostgresKilled,
}

const FAULTS: [Fault; 18] = [
    Fault::WorkerKilled,
    Fault::WorkerDies("before-kernel:2"),
    Fault::WorkerDies("after-kernel:2"),
    Fault::WorkerDies("after-reply:2"),
    Fault::WorkerDies("after-events:2"),
    Fault::WorkerFrozen,
    Fault::WorkerDrained,
    Fault::ExecutorKilled,
    Fault::LinkCut,
    Fault::LinkCutInTheMiddle,
    Fault::LinkHalfOpen(Silence::All),
    Fault::LinkHalfOpen(Silence::Consuming),
    Fault::LinkSlow,
    Fault::BrokerKilled,
    Fault::BrokerFrozen,
    Fault::MemoryAlarm,
    Fault::RecorderKilled,
    Fault::PostgresKilled,
];

/// The target of the faults: a worker behind a proxy, and a worker that is connected directly.
struct Target {
    ground: Ground,
    proxy: Proxy,
    behind: TestWorker,
    plain: TestWorker,
    chance: Rng,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_has_one_correct_outcome_despite_random_faults() {
    match std::env::var(SEED_VARIABLE) {
        Ok(seed) => survive(seed.parse().expect("a seed is a number")).await,
        Err(_) => {
            for seed in [1, 2] {
                survive(seed).await;
            }
        }
    }
}

async fn survive(seed: u64) {
    println!("{SEED_VARIABLE}={seed}");
    let mut target = Target::with_seed(seed).await;
    let fleet = target.ground.client().await;
    let mut faults = FAULTS;
    target.chance.shuffle(&mut faults);
    let mut expected: Vec<(JobId, AttemptState)> = Vec::new();
    let mut confirmed: Vec<ConfirmedJob> = Vec::new();
    for fault in &faults[..ROUNDS] {
        let jobs: Vec<_> = (0..JOBS_EACH).map(|_| target.job()).collect();
        let submitting = async {
            let mut submitted = Vec::new();
            for (job, state) in jobs {
                // After a missed confirm the client submits the same job again.
                let job = fleet.submit_until_confirmed(&job).await;
                submitted.push((job, state));
            }
            submitted
        };
        println!("{fault:?}");
        let (submitted, ()) = tokio::join!(submitting, target.strike(*fault));
        for (job, state) in submitted {
            expected.push((job.id(), state));
            confirmed.push(job);
        }
    }
    for job in &mut confirmed {
        // The wait must end with an outcome. The history check compares it with the ledger.
        if let Err(error) = job.wait(WAIT).await {
            assert!(error.failure().is_some(), "seed {seed}: {error}");
        }
    }
    target.ground.check_history(confirmed.len()).await;
    for (job_id, state) in expected {
        let detail = target.ground.final_job(job_id).await;
        assert_eq!(detail.job.state, state.job_state(), "seed {seed}: {job_id}: {:?}", detail.job.failure);
    }
}

impl Target {
    async fn with_seed(seed: u64) -> Self {
        let ground = Ground::breakable("nemesis").await;
        let proxy = ground.proxy().await;
        let behind = start_behind(&ground, &proxy).await;
        let plain = ground.worker().await;
        Self { ground, proxy, behind, plain, chance: Rng::with_seed(seed) }
    }

    /// Returns a random job and its expected outcome.
    fn job(&mut self) -> (Job, AttemptState) {
        let millis = self.chance.u64(1..=400);
        match self.chance.u64(1..=20) {
            1 => {
                let limit = Duration::from_millis(self.chance.u64(100..=500));
                (kernels::endless().time_limit(limit).attempts_max(ATTEMPTS_MAX), AttemptState::Failed)
            }
            2 => (kernels::writes_beyond_its_buffer().attempts_max(ATTEMPTS_MAX), AttemptState::Failed),
            3 => (kernels::with_buffer_of(1 << 39), AttemptState::Failed),
            _ => (busy::for_millis(millis).attempts_max(ATTEMPTS_MAX), AttemptState::Succeeded),
        }
    }

    async fn a_while(&mut self, low_ms: u64, high_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.chance.u64(low_ms..=high_ms))).await;
    }

    /// Causes the fault after a random time, and repairs it.
    async fn strike(&mut self, fault: Fault) {
        self.a_while(0, 300).await;
        let services = std::sync::Arc::clone(self.ground.fleet().services());
        let (broker, postgres) = (services.broker(), services.postgres());
        match fault {
            Fault::WorkerKilled => {
                self.plain.kill9().await.unwrap();
                self.plain = self.ground.worker().await;
            }
            Fault::WorkerDies(place) => {
                let doomed = self.ground.start_worker_in(&[], &[("GPUFLEET_WORKER_DIES", place)]);
                self.a_while(500, 2000).await;
                // The worker may not have reached the failpoint.
                doomed.process().signal(Signal::Kill);
            }
            Fault::WorkerFrozen => {
                self.behind.process().pause();
                self.a_while(100, 12_000).await;
                self.behind.process().resume();
            }
            Fault::WorkerDrained => {
                assert_eq!(self.plain.stop(Signal::Terminate).await, Some(0));
                self.plain = self.ground.worker().await;
            }
            Fault::ExecutorKilled => self.plain.kill_executor().await,
            Fault::LinkCut => self.proxy.cut(),
            Fault::LinkCutInTheMiddle => {
                self.proxy.cut_after(self.chance.u64(1..=20_000) as u32);
                self.a_while(500, 1500).await;
                self.proxy.clear();
            }
            Fault::LinkHalfOpen(silence) => {
                self.proxy.silence(silence);
                self.a_while(500, 12_000).await;
                self.proxy.clear();
            }
            Fault::LinkSlow => {
                self.proxy.delay(Duration::from_millis(self.chance.u64(5..=100)));
                self.a_while(500, 3000).await;
                self.proxy.clear();
            }
            Fault::BrokerKilled => self.ground.crash_broker().await,
            Fault::BrokerFrozen => {
                broker.pause();
                self.a_while(500, 5000).await;
                broker.resume();
            }
            Fault::MemoryAlarm => {
                self.ground.watermark("0.0000001").await;
                self.a_while(500, 2000).await;
                self.ground.watermark("0.4").await;
            }
            Fault::RecorderKilled => {
                self.ground.fleet().ledger().expect("it runs").kill9().await.unwrap();
                self.ground.fleet().start_ledger().await.unwrap();
            }
            Fault::PostgresKilled => {
                postgres.kill9().await.unwrap();
                self.a_while(100, 1000).await;
                postgres.restart().await.unwrap();
            }
        }
    }
}

async fn start_behind(ground: &Ground, proxy: &Proxy) -> TestWorker {
    ground.worker_with(&["--amqp-url", proxy.url(), "--heartbeat", "4s"]).await
}
