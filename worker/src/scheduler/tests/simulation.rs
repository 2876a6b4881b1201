//! Simulates ten thousand jobs on a virtual clock, and checks invariants under random events.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
};

use gpufleet_schema::Priority;
use proptest::prelude::*;

use super::{
    super::{
        Action, Allowed, Change, Demand, DeviceId, ExecutorId, PoolGuarantee, PoolId, Scheduler, SessionTerms, Ticket,
    },
    with_pools,
};

const SLOTS: u32 = 3;
const BYTES: u64 = 100;

/// Pools with endless work: whenever a job ends, another one of its pool arrives.
struct Endless {
    scheduler: Scheduler,
    now: u64,
    /// The times at which running jobs end, with their tickets.
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    jobs: HashMap<u64, (u32, u64)>,
    used: Vec<u64>,
    started: u64,
}

impl Endless {
    fn new(guarantees: &[PoolGuarantee]) -> Self {
        Self {
            scheduler: with_pools(guarantees, SLOTS, BYTES),
            now: 0,
            ends: BinaryHeap::new(),
            jobs: HashMap::new(),
            used: vec![0; guarantees.len()],
            started: 0,
        }
    }

    fn arrive(&mut self, pool: u32, length: u64, bytes: u64) {
        let ticket = self.jobs.len() as u64;
        self.jobs.insert(ticket, (pool, length));
        let demand = Demand {
            pool: PoolId(pool),
            priority: Priority::Normal,
            bytes,
            alone: false,
            prints: false,
            allowed: Allowed::ALL,
            input: None,
            returnable: true,
            brief_us: None,
            is_long: false,
            session: None,
        };
        let actions = self.scheduler.step([Change::Arrived(Ticket(ticket), demand)]);
        self.follow(actions);
    }

    fn follow(&mut self, actions: Vec<Action>) {
        for action in actions {
            let Action::Start(ticket, _) = action else { panic!("unexpected {action:?}") };
            self.started += 1;
            self.ends.push(Reverse((self.now + self.jobs[&ticket.0].1, ticket.0)));
        }
    }

    /// Ends the next job and returns its pool.
    fn end_one(&mut self) -> u32 {
        let Reverse((at, ticket)) = self.ends.pop().expect("something runs");
        self.now = at;
        let (pool, length) = self.jobs[&ticket];
        self.used[pool as usize] += length;
        let actions = self.scheduler.step([Change::Left { ticket: Ticket(ticket), used_us: length }]);
        self.follow(actions);
        pool
    }
}

const EQUAL: PoolGuarantee = PoolGuarantee { weight: 1, memory_permille: 0 };
const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3600 * SECOND_US;

#[test]
fn a_pool_whose_jobs_did_not_fit_makes_up_for_seconds_and_not_for_hours() {
    let mut world = Endless::new(&[EQUAL, EQUAL]);
    let run = |world: &mut Endless, until, bytes: [u64; 2]| {
        while world.now < until {
            let pool = world.end_one();
            world.arrive(pool, SECOND_US, bytes[pool as usize]);
        }
    };
    // Only one large job fits at a time, so the other pool has the remaining slots and more than its share.
    let large = [60, 10];
    (0..IN_HAND).for_each(|_| (0..2).for_each(|pool| world.arrive(pool, SECOND_US, large[pool as usize])));
    run(&mut world, HOUR_US, large);
    assert!(world.used[1] > world.used[0] + HOUR_US / 2, "{:?}", world.used);
    let before = world.used.clone();
    run(&mut world, HOUR_US + 60 * SECOND_US, [1, 1]);
    let since = [world.used[0] - before[0], world.used[1] - before[1]];
    assert!(since[1] * 5 > (since[0] + since[1]) * 2, "in the minute after: {since:?}");
}

#[test]
fn a_pool_that_has_more_than_its_share_by_a_slot_of_its_own_costs_the_others_no_weight() {
    let owner = PoolGuarantee { weight: 1, memory_permille: 250 };
    let mut world =
        Endless::new(&[PoolGuarantee { weight: 30, ..EQUAL }, PoolGuarantee { weight: 10, ..EQUAL }, owner]);
    (0..IN_HAND).for_each(|_| (0..3).for_each(|pool| world.arrive(pool, SECOND_US, 1)));
    while world.now < HOUR_US {
        let pool = world.end_one();
        world.arrive(pool, SECOND_US, 1);
    }
    let [first, second, owner] = world.used[..] else { panic!("three pools") };
    assert!(owner > (first + second) / 3, "it always has its own place: {:?}", world.used);
    let ratio = first as f64 / second as f64;
    assert!((2.85..3.15).contains(&ratio), "{:?}", world.used);
}

/// Number of jobs of each pool that wait or run: more than can run at once, so that a pool always has work.
const IN_HAND: usize = 2 * SLOTS as usize;
const JOBS: u64 = 10_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn pools_with_endless_work_share_device_time_by_weight(
        weights in prop::collection::vec(1..8_u32, 2..5),
        lengths in prop::collection::vec(1..50_u64, 64),
        slower in 1..40_u64,
    ) {
        let guarantees: Vec<_> = weights.iter().map(|weight| PoolGuarantee { weight: *weight, memory_permille: 0 }).collect();
        let mut world = Endless::new(&guarantees);
        // Each pool has jobs of different lengths.
        let length = |pool: u32, count: u64| lengths[count as usize % lengths.len()] * 100 * (1 + u64::from(pool % 2) * slower);
        for pool in 0..weights.len() as u32 {
            for count in 0..IN_HAND as u64 {
                world.arrive(pool, length(pool, count), 1);
            }
        }
        // Jobs that are still running at the end are not in the sums, because they are charged by estimate.
        while world.started < JOBS {
            let pool = world.end_one();
            world.arrive(pool, length(pool, world.started), 1);
        }
        let (total, weight): (u64, u32) = (world.used.iter().sum(), weights.iter().sum());
        for (pool, used) in world.used.iter().enumerate() {
            let fair = total as f64 * f64::from(weights[pool]) / f64::from(weight);
            // For a pool that ran only a few dozen long jobs, one job more or less can exceed the tolerance.
            let longest = (0..lengths.len() as u64).map(|count| length(pool as u32, count)).max().unwrap_or(0);
            let allowed = 0.05 * fair + longest as f64;
            prop_assert!((*used as f64 - fair).abs() < allowed, "pool {pool} had {used} of {total} us, its weight is {fair:.0}");
        }
    }

    #[test]
    fn no_pool_with_work_waits_long_whatever_the_others_ask_for(
        weights in prop::collection::vec(1..100_u32, 2..4),
        budgets in prop::collection::vec(0..250_u32, 4),
        bytes in prop::collection::vec(0..50_u64, 64),
    ) {
        let guarantees: Vec<_> = weights.iter().zip(&budgets)
            .map(|(weight, budget)| PoolGuarantee { weight: *weight, memory_permille: *budget }).collect();
        // One executor for each guarantee, as a worker has.
        let mut world = Endless::new(&guarantees);
        for pool in 0..weights.len() as u32 {
            for count in 0..IN_HAND {
                world.arrive(pool, 1_000, bytes[count % bytes.len()]);
            }
        }
        let mut last_seen = vec![0; weights.len()];
        while world.started < JOBS / 10 {
            let pool = world.end_one();
            last_seen[pool as usize] = world.started;
            world.arrive(pool, 1_000, bytes[world.started as usize % bytes.len()]);
            for (pool, seen) in last_seen.iter().enumerate() {
                let weight: u32 = weights.iter().sum();
                let fair_gap = u64::from(weight / weights[pool] + 1);
                prop_assert!(world.started - seen < 20 * fair_gap + 300, "pool {pool} had no job end for {} starts", world.started - seen);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Arrive(Demand),
    Leave(prop::sample::Index, u64),
    Down(ExecutorId),
    Up(ExecutorId),
    Tick,
}

const POOLS: [PoolGuarantee; 3] = [
    PoolGuarantee { weight: 1, memory_permille: 0 },
    PoolGuarantee { weight: 3, memory_permille: 250 },
    PoolGuarantee { weight: 2, memory_permille: 500 },
];

/// The number of executors of each pool on each device.
const EXECUTORS: [u32; POOLS.len()] = [1, 2, 3];

/// Returns the executors of all pools on both devices.
fn executors() -> Vec<ExecutorId> {
    let pools = (0..2).map(DeviceId).flat_map(|device| (0..).map(PoolId).zip(EXECUTORS).map(move |of| (device, of)));
    pools.flat_map(|(device, (pool, count))| (0..count).map(move |index| ExecutorId { device, pool, index })).collect()
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let (alone, prints, is_long) = (prop::bool::weighted(0.1), prop::bool::weighted(0.3), any::<bool>());
    let (bytes, brief_us) = (prop_oneof![0..=BYTES, 0..=2_u64], prop::option::weighted(0.7, 0..300_u32));
    let terms = (any::<bool>(), prop::bool::weighted(0.3)).prop_map(|(insists, is_whole)| SessionTerms {
        memory_permille: 1000,
        insists,
        is_whole,
    });
    let session = prop::option::weighted(0.2, terms);
    (0..POOLS.len() as u32, priority, bytes, alone, prints, brief_us, is_long, session).prop_map(
        |(pool, priority, bytes, alone, prints, brief_us, is_long, session)| Demand {
            pool: PoolId(pool),
            priority,
            // A whole device is taken whatever its memory.
            bytes: if session.is_some_and(|terms| terms.is_whole) { 0 } else { bytes },
            alone: alone && session.is_none(),
            prints: prints && session.is_none(),
            allowed: Allowed::ALL,
            input: None,
            returnable: true,
            brief_us: brief_us.filter(|_| !alone && !prints && !is_long && session.is_none()),
            is_long: is_long && session.is_none(),
            session,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any_demand().prop_map(Step::Arrive),
        4 => (any::<prop::sample::Index>(), 0..10_000_u64).prop_map(|(index, used)| Step::Leave(index, used)),
        1 => prop::sample::select(executors()).prop_map(Step::Down),
        1 => prop::sample::select(executors()).prop_map(Step::Up),
        2 => Just(Step::Tick),
    ]
}

/// A scheduler with executors that cache the memory of their jobs; checks the invariants that are visible from outside.
struct World {
    scheduler: Scheduler,
    demands: Vec<Demand>,
    running: Vec<(Ticket, ExecutorId)>,
    /// The first job of the train that each job rides in; itself if it is alone.
    trains: HashMap<Ticket, Ticket>,
    waiting: HashSet<Ticket>,
    /// The cached memory of the executors that are up.
    kept: HashMap<ExecutorId, u64>,
}

impl World {
    fn new() -> Self {
        let scheduler = with_pools(&POOLS, SLOTS, BYTES);
        let (demands, running, trains, waiting, kept) = Default::default();
        let mut world = Self { scheduler, demands, running, trains, waiting, kept };
        world.step(Change::Device { device: DeviceId(1), slots: SLOTS, bytes: BYTES });
        world.all_up();
        world
    }

    fn all_up(&mut self) {
        executors().into_iter().for_each(|executor| self.up(executor));
    }

    fn up(&mut self, executor: ExecutorId) {
        self.kept.entry(executor).or_insert(0);
        self.step(Change::ExecutorUp(executor));
    }

    fn down(&mut self, executor: ExecutorId) {
        self.kept.remove(&executor);
        self.step(Change::ExecutorDown(executor));
    }

    fn demand(&self, ticket: Ticket) -> Demand {
        self.demands[ticket.0 as usize]
    }

    /// Returns the running jobs of an executor, without sessions.
    fn jobs_in(&self, executor: ExecutorId) -> impl Iterator<Item = Demand> {
        let of_executor = self.running.iter().filter(move |(_, runs_in)| *runs_in == executor);
        of_executor.map(|(ticket, _)| self.demand(*ticket)).filter(|demand| demand.session.is_none())
    }

    /// Checks that a long job shares no executor while its pool has an empty one on the device. A down executor has no cache.
    fn assert_apart(&self, started: Demand, executor: ExecutorId) {
        let is_same = |other: &&ExecutorId| (other.device, other.pool) == (executor.device, executor.pool);
        let has_jobs = |executor| self.jobs_in(executor).next().is_some();
        if started.is_long && has_jobs(executor) {
            assert!(self.kept.keys().filter(is_same).all(|other| has_jobs(*other)), "another executor was empty");
        }
    }

    /// Ends a job. Its memory stays cached in its executor, which reports that before the job leaves.
    fn leave(&mut self, index: usize, used_us: u64) {
        let (ticket, executor) = self.running.swap_remove(index);
        let Demand { bytes, session, .. } = self.demand(ticket);
        if session.is_none()
            && let Some(kept) = self.kept.get_mut(&executor)
        {
            *kept += bytes;
            let bytes = *kept;
            self.step(Change::Cached { executor, bytes });
        }
        self.step(Change::Left { ticket, used_us });
    }

    fn step(&mut self, change: Change) {
        let is_release = |action: &Action| matches!(action, Action::ReleaseCache(_));
        let (releases, starts): (Vec<_>, Vec<_>) = self.scheduler.step([change]).into_iter().partition(is_release);
        starts.into_iter().for_each(|action| self.start(action));
        for action in releases {
            let Action::ReleaseCache(executor) = action else { unreachable!("the others are starts") };
            *self.kept.get_mut(&executor).expect("only executors that are up are asked") = 0;
            self.step(Change::Cached { executor, bytes: 0 });
        }
        (0..2).map(DeviceId).for_each(|device| self.check(device));
    }

    fn start(&mut self, action: Action) {
        let (ticket, train, executor) = match action {
            Action::Start(ticket, executor) => (ticket, ticket, executor),
            Action::Join { ticket, first, executor } => (ticket, first, executor),
            other => panic!("unexpected {other:?}"),
        };
        assert!(self.waiting.remove(&ticket), "{ticket:?} started twice or never arrived");
        let demand = self.demand(ticket);
        if demand.session.is_none() {
            self.assert_apart(demand, executor);
            let kept = self.kept.get_mut(&executor).expect("jobs start where an executor is up");
            *kept = (*kept).min(self.scheduler.cache_bytes_max(executor));
        }
        self.trains.insert(ticket, train);
        self.running.push((ticket, executor));
    }

    fn check(&self, device: DeviceId) {
        let here = || self.running.iter().filter(|(_, executor)| executor.device == device);
        let jobs = here().filter(|(ticket, _)| self.demand(*ticket).session.is_none());
        let slots: HashSet<Ticket> = jobs.map(|(ticket, _)| self.trains[ticket]).collect();
        assert!(slots.len() <= SLOTS as usize);
        let taken: u64 = here().map(|(ticket, _)| self.demand(*ticket).bytes).sum();
        let kept: u64 = self.kept.iter().filter(|(executor, _)| executor.device == device).map(|(_, kept)| kept).sum();
        assert!(taken + kept <= BYTES);
        if here().any(|(ticket, _)| self.demand(*ticket).is_whole()) {
            assert_eq!((here().count(), kept), (1, 0), "nothing is beside the job that has the whole device");
        }
        for executor in executors().into_iter().filter(|executor| executor.device == device) {
            let mut jobs = self.jobs_in(executor);
            assert!(self.jobs_in(executor).filter(|demand| demand.prints).count() <= 1);
            assert!(self.jobs_in(executor).count() <= 1 || jobs.all(|demand| !demand.alone));
        }
    }
}

proptest! {
    #[test]
    fn no_device_is_overcommitted_and_everything_runs_in_the_end(steps in prop::collection::vec(any_step(), 1..300)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Arrive(demand) => {
                    let ticket = Ticket(world.demands.len() as u64);
                    world.demands.push(demand);
                    world.waiting.insert(ticket);
                    world.step(Change::Arrived(ticket, demand));
                }
                Step::Leave(index, used_us) if !world.running.is_empty() => {
                    world.leave(index.index(world.running.len()), used_us);
                }
                Step::Leave(..) => {}
                Step::Down(executor) => world.down(executor),
                Step::Up(executor) => world.up(executor),
                Step::Tick => world.step(Change::Tick),
            }
        }
        world.all_up();
        // Let time pass as well: jobs that wait for memory that is not lent yet start after one or two ticks.
        let mut ticks = 0;
        while ticks < 2 || !world.running.is_empty() {
            ticks = if world.running.is_empty() { ticks + 1 } else { 0 };
            match world.running.len() {
                0 => world.step(Change::Tick),
                running => world.leave(running - 1, 1),
            }
        }
        prop_assert!(world.waiting.is_empty(), "left waiting: {:?}", world.waiting);
    }
}
