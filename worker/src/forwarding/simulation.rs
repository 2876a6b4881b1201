//! Simulates a fleet of a thousand workers. Queues, retry ladder and clock are plain data; the decisions are the real code.

use std::collections::{BTreeMap, HashMap, VecDeque};

use gpufleet_schema::{Announcement, ClassKey, DeviceClass, PoolName, Requires};

use super::{Candidate, Destination, ForwardingHistory, Need, Outlook, Roster, choose, describe, wait};

const TICK_MS: u64 = 100;
/// Number of jobs that a worker runs in a tick.
const RUNS: usize = 20;
/// Number of jobs that a worker receives in a tick and can't run.
const LOOKS: usize = 4;
/// Lifetime of a broker's answer in milliseconds, as in the census.
const ANSWER_GOOD_FOR_MS: u64 = 1000;
/// Interval of checks of a class queue in milliseconds: about as often as all workers together check one.
const STRANDED_EVERY_MS: u64 = 5000;
const STRANDED_BATCH: usize = 8;

#[derive(Debug, Clone)]
struct Job {
    requires: Requires,
    history: ForwardingHistory,
}

#[derive(Debug)]
struct Worker {
    class: DeviceClass,
    is_up: bool,
    /// The delay between an announcement and its reading, in milliseconds.
    reads_after_ms: u64,
    /// The number of announcements read.
    read: usize,
    roster: Roster,
}

#[derive(Debug, Default)]
struct World {
    now_ms: u64,
    workers: Vec<Worker>,
    log: Vec<(u64, Announcement)>,
    tasks: VecDeque<Job>,
    classes: HashMap<ClassKey, VecDeque<Job>>,
    ladder: BTreeMap<u64, Vec<Job>>,
    /// The current answers of the census: messages and consumers of each class queue.
    answers: HashMap<ClassKey, (u32, u32)>,
    done: Vec<(Job, DeviceClass)>,
    failed: Vec<(u64, String)>,
    dice: u64,
}

fn pool() -> PoolName {
    PoolName::default()
}

fn class(name: &str, major: u32) -> DeviceClass {
    DeviceClass::new(name, [major, 0], 16 << 30, false)
}

fn compute_capability(major: u32) -> Requires {
    Requires { compute_capability_min: Some([major, 0]), ..Requires::default() }
}

impl World {
    fn of(classes: impl IntoIterator<Item = DeviceClass>) -> Self {
        let mut world = Self::default();
        classes.into_iter().for_each(|class| world.start(class));
        world
    }

    /// Creates 999 workers whose devices are too old, and one that fits.
    fn where_one_fits() -> Self {
        Self::of((0..999).map(|_| class("L4", 8)).chain([class("H200", 9)]))
    }

    fn start(&mut self, class: DeviceClass) {
        self.announce(&class);
        let roster = Roster::default();
        self.workers.push(Worker { class, is_up: true, reads_after_ms: 0, read: 0, roster });
    }

    /// Announces a class unless the stream already has the announcement.
    fn announce(&mut self, class: &DeviceClass) {
        let announcement = Announcement { pools: vec![pool()], classes: vec![class.clone()] };
        if self.log.iter().all(|(_, known)| *known != announcement) {
            self.log.push((self.now_ms, announcement));
        }
    }

    fn submit(&mut self, jobs: usize, requires: &Requires) {
        let job = Job { requires: requires.clone(), history: ForwardingHistory::default() };
        self.tasks.extend(std::iter::repeat_n(job, jobs));
    }

    fn run_until_all_have_ended(&mut self, jobs: usize) {
        while self.done.len() + self.failed.len() < jobs {
            self.tick();
            assert!(self.now_ms < 3_600_000, "jobs hang: {} done, {} failed", self.done.len(), self.failed.len());
        }
    }

    fn run_until(&mut self, now_ms: u64) {
        while self.now_ms < now_ms {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now_ms += TICK_MS;
        let waiting = self.ladder.split_off(&(self.now_ms + 1));
        self.tasks.extend(std::mem::replace(&mut self.ladder, waiting).into_values().flatten());
        self.read_announcements();
        if self.now_ms.is_multiple_of(ANSWER_GOOD_FOR_MS) || self.answers.is_empty() {
            self.ask_the_broker();
        }
        let first = self.roll() as usize;
        for at in 0..self.workers.len() {
            self.work((first + at) % self.workers.len());
        }
        if self.now_ms.is_multiple_of(STRANDED_EVERY_MS) {
            self.collect_stranded();
        }
    }

    fn read_announcements(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| worker.is_up) {
            while let Some((at_ms, announcement)) = self.log.get(worker.read)
                && at_ms + worker.reads_after_ms <= self.now_ms
            {
                worker.roster.hear(announcement.clone(), 0);
                worker.read += 1;
            }
        }
    }

    fn ask_the_broker(&mut self) {
        self.answers.clear();
        for worker in self.workers.iter().filter(|worker| worker.is_up) {
            self.answers.entry(worker.class.key).or_default().1 += 1;
        }
        for (class, queue) in &self.classes {
            self.answers.entry(*class).or_default().0 = queue.len() as u32;
        }
    }

    /// Simulates a tick of one worker, which takes jobs from its class queue and from the task queue.
    fn work(&mut self, at: usize) {
        if !self.workers[at].is_up {
            return;
        }
        let (mut runs, mut looks) = (0, 0);
        let class = self.workers[at].class.key;
        while runs < RUNS && looks < LOOKS {
            let from_class = self.classes.get_mut(&class).and_then(VecDeque::pop_front);
            let Some(job) = from_class.or_else(|| self.tasks.pop_front()) else { return };
            if self.handle(at, job) { runs += 1 } else { looks += 1 }
        }
    }

    /// Runs, forwards or delays a job. Returns whether the worker ran it.
    fn handle(&mut self, at: usize, job: Job) -> bool {
        let need = Need { requires: &job.requires, blob_store: false, memory_bytes_min: 0 };
        if need.is_met_by(&self.workers[at].class) {
            let class = self.workers[at].class.clone();
            self.done.push((job, class));
            return true;
        }
        let dice = self.roll();
        let roster = &self.workers[at].roster;
        let answer = |class: &DeviceClass| self.answers.get(&class.key).copied().unwrap_or_default();
        let fitting = roster.fitting(&pool(), need);
        let candidates: Vec<_> = fitting
            .iter()
            .map(|class| {
                let (messages, consumers) = answer(class);
                Candidate { class: class.key, messages, consumers, is_own: false }
            })
            .collect();
        if let Some(class) = choose(&candidates, job.history, dice) {
            let history = job.history.forwarded();
            self.send(Job { history, ..job }, Destination::Class(class));
            return false;
        }
        let known: Vec<_> =
            roster.classes(&pool()).into_iter().map(|class| (class.clone(), answer(&class).1)).collect();
        let workers: u32 = self.answers.values().map(|(_, consumers)| consumers).sum();
        let all_known = workers <= known.iter().map(|(_, consumers)| consumers).sum();
        let outlook = if fitting.is_empty() && all_known { Outlook::Closed } else { Outlook::Open };
        match wait(job.history, outlook) {
            Some(rung) => {
                let history = job.history.waited();
                self.send(Job { history, ..job }, Destination::Later(rung));
            }
            None => self
                .failed
                .push((self.now_ms, format!("no worker of the pool has {need}; available: {}", describe(&known)))),
        }
        false
    }

    fn send(&mut self, job: Job, to: Destination) {
        match to {
            Destination::Class(class) => self.classes.entry(class).or_default().push_back(job),
            Destination::Later(rung) => {
                let at_ms = self.now_ms + u64::from(rung.seconds) * 1000;
                self.ladder.entry(at_ms).or_default().push(job);
            }
        }
    }

    fn collect_stranded(&mut self) {
        let classes: Vec<_> = self.classes.keys().copied().collect();
        for class in classes {
            let has_worker = self.workers.iter().any(|worker| worker.is_up && worker.class.key == class);
            let up: Vec<_> = (0..self.workers.len()).filter(|at| self.workers[*at].is_up).collect();
            while !has_worker && self.classes.get(&class).is_some_and(|queue| !queue.is_empty()) {
                for _ in 0..STRANDED_BATCH {
                    let Some(job) = self.classes.get_mut(&class).and_then(VecDeque::pop_front) else { break };
                    let at = up[self.roll() as usize % up.len()];
                    self.handle(at, job);
                }
            }
        }
    }

    /// Returns the next pseudorandom number (xorshift); the sequence is the same in every run.
    fn roll(&mut self) -> u64 {
        self.dice = if self.dice == 0 { 0x9e37_79b9_7f4a_7c15 } else { self.dice };
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    /// Returns the maximum and the mean number of forwards of a job.
    fn forwards(&self) -> (u32, f64) {
        let forwards = || self.done.iter().map(|(job, _)| job.history.forwards);
        let mean = f64::from(forwards().sum::<u32>()) / self.done.len() as f64;
        let max = forwards().max().unwrap_or(0);
        println!("{} jobs in {} s: {max} forwards at most, {mean:.3} on average", self.done.len(), self.now_ms / 1000);
        (max, mean)
    }
}

#[test]
fn ten_thousand_jobs_find_the_one_worker_of_a_thousand_that_fits() {
    let mut world = World::where_one_fits();
    world.submit(10_000, &compute_capability(9));
    world.run_until_all_have_ended(10_000);
    assert!(world.failed.is_empty(), "{} failed, the first: {:?}", world.failed.len(), world.failed[0]);
    let (max, mean) = world.forwards();
    assert!(max == 1 && mean <= 1.0, "one hop is enough: {max} at most, {mean} on average");
    assert!(world.done.iter().all(|(job, class)| class.name == "H200" && job.history.waits == 0));
}

#[test]
fn where_nothing_fits_every_job_fails_within_seconds_with_what_the_workers_have() {
    let mut world = World::of((0..1000).map(|at| class(if at % 2 == 0 { "L4" } else { "A10" }, 8)));
    world.submit(10_000, &compute_capability(9));
    world.run_until_all_have_ended(10_000);
    assert!(world.done.is_empty());
    let last = world.failed.iter().map(|(at_ms, _)| *at_ms).max().unwrap();
    assert!((1_000..20_000).contains(&last), "{last} ms");
    for (_, message) in &world.failed {
        for part in ["no worker of the pool has compute capability 9.0", "500 × L4", "500 × A10"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn jobs_of_a_class_without_workers_fail_after_two_minutes() {
    let mut world = World::where_one_fits();
    world.run_until(1000);
    world.workers[999].is_up = false;
    world.run_until(3000);
    world.submit(1000, &compute_capability(9));
    world.run_until_all_have_ended(1000);
    assert!(world.done.is_empty());
    let first = world.failed.iter().map(|(at_ms, _)| at_ms - 3000).min().unwrap();
    let last = world.failed.iter().map(|(at_ms, _)| at_ms - 3000).max().unwrap();
    assert!(first >= 120_000 && last < 180_000, "{first} to {last} ms");
    assert!(
        world
            .failed
            .iter()
            .all(|(_, message)| message.ends_with("999 × L4 (compute capability 8.0, 17179869184 bytes)"))
    );
}

#[test]
fn jobs_survive_that_the_only_worker_that_fits_restarts() {
    let mut world = World::where_one_fits();
    world.submit(10_000, &compute_capability(9));
    world.run_until(5_000);
    let before = world.done.len();
    world.workers[999].is_up = false;
    world.run_until(65_000);
    assert!(before > 0 && world.done.len() == before, "they wait");
    world.start(class("H200", 9));
    world.run_until_all_have_ended(10_000);
    assert!(world.failed.is_empty(), "{} failed, the first: {:?}", world.failed.len(), world.failed[0]);
    let (max, mean) = world.forwards();
    assert!(max <= 3 && mean <= 3.0, "{max} at most, {mean} on average");
}

#[test]
fn jobs_of_a_class_that_is_gone_go_to_another_that_fits() {
    let mut world = World::where_one_fits();
    world.submit(10_000, &compute_capability(9));
    world.run_until(5_000);
    world.workers[999].is_up = false;
    world.run_until(8_000);
    world.start(class("B200", 10));
    world.run_until_all_have_ended(10_000);
    assert!(world.failed.is_empty(), "{} failed, the first: {:?}", world.failed.len(), world.failed[0]);
    assert!(world.done.iter().any(|(_, class)| class.name == "B200"));
    assert!(world.forwards().0 <= 4);
}

#[test]
fn with_many_classes_every_job_goes_straight_to_its_own() {
    let names: Vec<_> = (0..200).map(|number| format!("GPU-{number:03}")).collect();
    let mut world = World::of((0..1000).map(|at| class(&names[at % names.len()], 8)));
    for name in &names {
        world.submit(50, &Requires { device: Some(name.clone()), ..Requires::default() });
    }
    world.run_until_all_have_ended(10_000);
    assert!(world.failed.is_empty());
    assert_eq!(world.forwards().0, 1);
    assert!(world.done.iter().all(|(job, class)| job.requires.device.as_ref() == Some(&class.name)));
}

#[test]
fn jobs_wait_for_announcements_that_arrive_late() {
    let mut world = World::of((0..999).map(|_| class("L4", 8)));
    world.run_until(1000);
    world.workers.iter_mut().for_each(|worker| worker.reads_after_ms = 30_000);
    world.start(class("H200", 9));
    world.submit(10_000, &compute_capability(9));
    world.run_until_all_have_ended(10_000);
    assert!(world.failed.is_empty(), "{} failed, the first: {:?}", world.failed.len(), world.failed[0]);
    assert_eq!(world.forwards().0, 1);
    assert!(world.done.iter().any(|(job, _)| job.history.waits > 3), "more workers were there than known classes have");
}
