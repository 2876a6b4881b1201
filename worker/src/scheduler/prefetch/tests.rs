use proptest::prelude::*;

use super::{Prefetch, PrefetchLimits, QueueLoad, STUCK_MAX, is_hoard, share::share_out};

const SLOTS: u32 = 4;
const MIB: u64 = 1 << 20;
const LIMITS: PrefetchLimits = PrefetchLimits { messages_max: 256, bytes_max: 512 * MIB, message_bytes_max: 16 * MIB };
/// Minimum time between two decisions of the dispatcher, in microseconds.
const LOOK_US: u64 = 10_000;

/// One worker and a queue that is never empty, so that the worker always holds its whole prefetch.
struct World {
    prefetch: Prefetch,
    now_us: u64,
    changes: u32,
}

impl World {
    fn new(limits: PrefetchLimits) -> Self {
        Self { prefetch: Prefetch::new(limits, 1, SLOTS), now_us: 0, changes: 0 }
    }

    /// Makes this many decisions. Between them, jobs of the lengths that `length_us` returns end one after the other on
    /// all slots.
    fn flow(&mut self, looks: u32, jobs_per_message: usize, bytes: u64, mut length_us: impl FnMut() -> u64) {
        let mut busy_until = [self.now_us; SLOTS as usize];
        for _ in 0..looks {
            self.now_us += LOOK_US;
            for place in &mut busy_until {
                while *place < self.now_us {
                    let length = length_us();
                    *place += length;
                    self.prefetch.job(0, length);
                    self.prefetch.message(0, jobs_per_message, bytes);
                }
            }
            let messages = u32::from(self.prefetch.of(0));
            self.look(QueueLoad { messages, messages_peak: messages, running: SLOTS, ..QueueLoad::default() });
        }
    }

    fn look(&mut self, load: QueueLoad) {
        self.changes += self.prefetch.decide(self.now_us, SLOTS, &[load]).len() as u32;
    }
}

#[test]
fn an_unknown_queue_sends_what_can_run_and_one_more() {
    assert_eq!(World::new(LIMITS).prefetch.of(0), 5);
}

#[test]
fn long_jobs_are_not_hoarded() {
    let mut world = World::new(LIMITS);
    world.flow(500, 1, 100, || 1_000_000);
    assert_eq!((world.prefetch.of(0), world.changes), (5, 0));
}

#[test]
fn tiny_jobs_are_asked_for_by_the_hundred_within_a_few_looks() {
    let mut world = World::new(LIMITS);
    world.flow(4, 1, 100, || 300);
    assert_eq!((world.prefetch.of(0), world.changes), (256, 2));
}

#[test]
fn a_list_counts_with_all_its_jobs() {
    let mut world = World::new(LIMITS);
    // 64 jobs of 1 ms on four slots take 16 ms.
    world.flow(20, 64, 1000, || 1_000);
    assert!((4..=6).contains(&world.prefetch.of(0)), "{}", world.prefetch.of(0));
}

#[test]
fn large_messages_are_bounded_by_their_bytes() {
    let mut world = World::new(LIMITS);
    world.flow(100, 1, 16 * MIB, || 300);
    assert!((25..=32).contains(&world.prefetch.of(0)), "{}", world.prefetch.of(0));
    // If small messages become large, the prefetch shrinks at once.
    let mut world = World::new(LIMITS);
    world.flow(10, 1, 100, || 300);
    world.prefetch.message(0, 1, 16 * MIB);
    world.look(QueueLoad { messages: 256, messages_peak: 256, ..QueueLoad::default() });
    assert_eq!(world.prefetch.of(0), 32);
    assert!(is_hoard(256, 32) && !is_hoard(40, 32));
}

#[test]
fn jobs_that_turn_long_are_noticed_while_they_run() {
    let mut world = World::new(LIMITS);
    world.flow(10, 1, 100, || 300);
    assert_eq!(world.prefetch.of(0), 256);
    for _ in 0..400 {
        world.now_us += LOOK_US;
        let running_us = u64::from(SLOTS) * (world.now_us - 100_000);
        let load = QueueLoad { messages: 256, messages_peak: 256, running: SLOTS, running_us, ..QueueLoad::default() };
        world.look(load);
    }
    assert!(world.prefetch.of(0) <= 2, "what runs is not counted by the broker any more");
    // One of the jobs ends, the others continue.
    let left =
        QueueLoad { messages: 4, messages_peak: 5, running: 3, running_us: 3_000_000, open: 1, ..QueueLoad::default() };
    world.look(left);
    assert!(world.prefetch.of(0) <= 5, "{}", world.prefetch.of(0));
}

#[test]
fn idle_queues_leave_the_bytes_to_one_that_has_work() {
    let limits = PrefetchLimits { bytes_max: 80 * MIB, ..LIMITS };
    let mut prefetch = Prefetch::new(limits, 3, SLOTS);
    assert_eq!([0, 1, 2].map(|queue| prefetch.of(queue)), [1, 2, 2]);
    prefetch.message(1, 1, 15 * MIB);
    let busy = QueueLoad { messages: 2, messages_peak: 2, running: 2, open: 2, ..QueueLoad::default() };
    let idle = QueueLoad { open: 2, ..QueueLoad::default() };
    prefetch.decide(0, SLOTS, &[idle, busy, idle]);
    assert_eq!([0, 1, 2].map(|queue| prefetch.of(queue)), [1, 2, 1], "with the two that lie here three would be five");
}

#[test]
fn messages_that_only_await_confirms_are_not_work() {
    let mut world = World::new(LIMITS);
    world.flow(10, 1, 100, || 1_000_000);
    let messages = 5;
    let slow =
        QueueLoad { messages, messages_peak: messages, settling: 4, running: 1, open: 3, ..QueueLoad::default() };
    world.look(slow);
    assert_eq!(world.prefetch.of(0), 9);
}

#[test]
fn one_straggler_among_tiny_jobs_changes_nothing() {
    let mut world = World::new(LIMITS);
    world.flow(10, 1, 100, || 300);
    let before = world.changes;
    for _ in 0..90 {
        world.now_us += LOOK_US;
        let running_us = world.now_us - 100_000;
        let load = QueueLoad { messages: 256, messages_peak: 256, running: 1, running_us, ..QueueLoad::default() };
        world.look(load);
    }
    world.flow(10, 1, 100, || 300);
    assert_eq!((world.prefetch.of(0), world.changes), (256, before));
}

#[test]
fn jobs_that_do_not_fit_let_others_come_past_them() {
    let mut world = World::new(LIMITS);
    world.flow(10, 1, 100, || 1_000_000);
    for _ in 0..100 {
        let messages = u32::from(world.prefetch.of(0));
        let stuck = messages - 1;
        world.look(QueueLoad { messages, messages_peak: messages, running: 1, open: 3, stuck, ..QueueLoad::default() });
    }
    assert!(f64::from(world.prefetch.of(0)) >= STUCK_MAX, "{}", world.prefetch.of(0));
    assert!(world.prefetch.of(0) <= 40, "a bound holds for them too");
}

#[test]
fn a_queue_without_work_beside_a_busy_one_keeps_one_message() {
    let mut prefetch = Prefetch::new(LIMITS, 2, SLOTS);
    let busy = QueueLoad { messages: 5, messages_peak: 5, running: SLOTS, ..QueueLoad::default() };
    for look in 0..200 {
        prefetch.decide(look * LOOK_US, SLOTS, &[busy, QueueLoad::default()]);
    }
    assert_eq!((prefetch.of(0), prefetch.of(1)), (5, 1));
    // The queue may use all slots as soon as they are open.
    let open = QueueLoad { messages: 1, messages_peak: 1, open: SLOTS, ..QueueLoad::default() };
    prefetch.decide(3_000_000, SLOTS, &[QueueLoad { running: 0, open: SLOTS, ..busy }, open]);
    assert_eq!(prefetch.of(1), 5);
}

fn any_load() -> impl Strategy<Value = QueueLoad> {
    (0..400_u32, 0..=SLOTS, 0..10_000_000_u64, 0..=SLOTS, 0..100_u32).prop_map(
        |(messages, running, running_us, open, stuck)| QueueLoad {
            messages,
            messages_peak: messages,
            running,
            running_us,
            open: open.min(SLOTS - running),
            settling: messages / 3,
            stuck,
        },
    )
}

proptest! {
    #[test]
    fn steady_work_is_some_tens_of_milliseconds_and_soon_left_alone(
        length_us in 200..2_000_000_u64,
        jitter in prop::collection::vec(0.5..1.5_f64, 64),
    ) {
        let mut world = World::new(LIMITS);
        let mut turn = 0;
        let mut next = || {
            turn += 1;
            (length_us as f64 * jitter[turn % jitter.len()]) as u64
        };
        world.flow(300, 1, 1000, &mut next);
        let settled = world.changes;
        prop_assert!(settled <= 8, "{settled} changes to find its place");
        world.flow(300, 1, 1000, &mut next);
        prop_assert!(world.changes <= settled + 3, "{} changes under steady work", world.changes - settled);
        let message_us = length_us as f64 / f64::from(SLOTS);
        let waiting_us = f64::from(world.prefetch.of(0) - SLOTS as u16) * message_us;
        let is_one_or_two = world.prefetch.of(0) <= SLOTS as u16 + 2;
        let is_all = world.prefetch.of(0) == LIMITS.messages_max;
        prop_assert!(
            // One message more is not worth a new subscription.
            is_one_or_two || is_all || (20_000.0..=100_000.0 + message_us).contains(&waiting_us),
            "{} messages of {length_us} µs", world.prefetch.of(0)
        );
    }

    #[test]
    fn bounds_hold_whatever_happens(
        steps in prop::collection::vec((0..6_usize, 1..100_usize, 0..=16 * MIB, 0..10_000_000_u64, prop::collection::vec(any_load(), 6)), 1..60),
        spare_mib in 0..400_u64,
    ) {
        // The configuration ensures that one message of maximum size of each queue always fits.
        let limits = PrefetchLimits { bytes_max: (6 * 16 + spare_mib) * MIB, ..LIMITS };
        let mut prefetch = Prefetch::new(limits, 6, SLOTS);
        for (look, (queue, jobs, bytes, length, loads)) in (0..).zip(steps) {
            prefetch.message(queue, jobs, bytes);
            prefetch.job(queue, length);
            prefetch.decide(look * LOOK_US, SLOTS, &loads);
            let queues = &prefetch.queues;
            prop_assert!(queues.iter().all(|queue| (1..=limits.messages_max).contains(&queue.prefetch)));
            let bytes: f64 = queues.iter().map(|queue| f64::from(queue.prefetch) * queue.bytes).sum();
            prop_assert!(bytes <= limits.bytes_max as f64, "{bytes} bytes of {}", limits.bytes_max);
        }
    }

    #[test]
    fn shares_stay_within_the_bytes_and_small_wants_are_met(
        queues in prop::collection::vec((1..300_u32, 1..16_000_u32, any::<bool>()), 1..8),
        bytes in 0..1_000_000_u32,
    ) {
        let wanted: Vec<f64> = queues.iter().map(|(wanted, _, _)| f64::from(*wanted)).collect();
        let sizes: Vec<f64> = queues.iter().map(|(_, size, _)| f64::from(*size)).collect();
        let idle: Vec<bool> = queues.iter().map(|(_, _, idle)| *idle).collect();
        let shares = share_out(f64::from(bytes), &wanted, &sizes, &idle);
        let total: f64 = shares.iter().zip(&sizes).map(|(share, size)| share * size).sum();
        prop_assert!(total <= f64::from(bytes).max(sizes.iter().sum()));
        prop_assert!(shares.iter().zip(&wanted).all(|(share, wanted)| (1.0..=wanted.max(1.0)).contains(share)));
        let demanded: f64 = wanted.iter().zip(&sizes).map(|(wanted, size)| wanted * size).sum();
        prop_assert!(demanded > f64::from(bytes) || shares == wanted);
    }
}
