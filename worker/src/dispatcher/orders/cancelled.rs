//! Cancellations by id and by label, kept for at least as long as the control stream keeps them and at most twice as long. If they take too
//! much memory, the oldest are forgotten earlier.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{JobId, Selection, topology::CONTROL_MAX_AGE_DAYS};

use super::order_info::OrderInfo;

type Labels = BTreeMap<String, String>;

/// How long a cancellation is kept at least, from when it was read, because the sender's clock may be wrong.
const KEPT: Duration = Duration::from_secs(CONTROL_MAX_AGE_DAYS * 24 * 3600);

/// Upper estimate of the memory for one job's id, in bytes.
const JOB_BYTES: usize = 64;
/// Estimate of the memory for an order besides its jobs and texts, in bytes.
const ORDER_BYTES: usize = 256;
/// Minimum memory charged for a selection by labels, in bytes. It is far more than a selection takes, to limit their number: a job is
/// compared with each selection that shares a label with it.
const LABELS_BYTES_MIN: usize = 4 << 10;

/// Two generations of orders: they move from `young` to `old`, and are then dropped.
#[derive(Debug)]
pub(super) struct Cancelled {
    young: Generation,
    old: Generation,
    since: Instant,
    /// Maximum memory of a generation, in bytes. A young generation that exceeds it becomes the old one at once.
    bytes_max: usize,
}

/// The result of storing an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) is_new: bool,
    /// Whether older orders were forgotten early to make room.
    pub(super) forgot: bool,
}

#[derive(Debug, Default)]
struct Generation {
    jobs: HashMap<JobId, Arc<OrderInfo>>,
    /// Selections by labels, by their first label, so that a job is compared with few of them.
    labelled: HashMap<(String, String), HashMap<Labels, Arc<OrderInfo>>>,
    /// Upper estimate of the memory of all of this, in bytes.
    bytes: usize,
}

impl Cancelled {
    pub(super) fn new(now: Instant, bytes_max: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), since: now, bytes_max }
    }

    /// Stores an order. An order that is read again is not new.
    pub(super) fn add(&mut self, selection: Selection, order: &Arc<OrderInfo>, now: Instant) -> Added {
        self.forget(now);
        let forgot = self.young.bytes > self.bytes_max && !self.old.is_empty();
        if self.young.bytes > self.bytes_max {
            self.turn(now);
        }
        let (mut is_new, mut bytes) = (false, 0);
        for job in selection.jobs {
            is_new |= !self.old.jobs.contains_key(&job) && !self.young.jobs.contains_key(&job);
            // The first order for a job is kept.
            if let Entry::Vacant(entry) = self.young.jobs.entry(job) {
                entry.insert(Arc::clone(order));
                bytes += JOB_BYTES;
            }
        }
        if let Some((name, value)) = selection.labels.first_key_value() {
            let first = (name.clone(), value.clone());
            let covers = |orders: &Generation| orders.covers(&first, &selection.labels, order);
            is_new |= !covers(&self.old) && !covers(&self.young);
            let text_bytes: usize = selection.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
            // The last order for a set of labels is kept, because it selects all jobs of the earlier ones too.
            match self.young.labelled.entry(first).or_default().entry(selection.labels) {
                Entry::Vacant(entry) => {
                    entry.insert(Arc::clone(order));
                    bytes += LABELS_BYTES_MIN + 2 * text_bytes;
                }
                Entry::Occupied(mut entry) => {
                    if entry.get().at_ms < order.at_ms {
                        entry.insert(Arc::clone(order));
                    }
                }
            }
        }
        if bytes > 0 {
            self.young.bytes += bytes + ORDER_BYTES + order.by.as_ref().map_or(0, String::len);
        }
        Added { is_new, forgot }
    }

    /// Returns the order that cancelled a job.
    pub(super) fn find(
        &mut self,
        job: JobId,
        labels: &Labels,
        submitted_ms: i64,
        now: Instant,
    ) -> Option<Arc<OrderInfo>> {
        self.forget(now);
        [&self.old, &self.young].into_iter().find_map(|orders| orders.find(job, labels, submitted_ms)).map(Arc::clone)
    }

    fn forget(&mut self, now: Instant) {
        if now.duration_since(self.since) >= KEPT {
            self.turn(now);
        }
    }

    fn turn(&mut self, now: Instant) {
        self.old = mem::take(&mut self.young);
        self.since = now;
    }
}

impl Generation {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.labelled.is_empty()
    }

    fn find(&self, job: JobId, labels: &Labels, submitted_ms: i64) -> Option<&Arc<OrderInfo>> {
        let by_label = || {
            let candidates =
                labels.iter().filter_map(|(name, value)| self.labelled.get(&(name.clone(), value.clone())));
            let meant = candidates.flatten().filter(|(selection, order)| {
                submitted_ms <= order.at_ms && selection.iter().all(|(name, value)| labels.get(name) == Some(value))
            });
            meant.map(|(_, order)| order).min_by_key(|order| order.at_ms)
        };
        self.jobs.get(&job).or_else(by_label)
    }

    fn covers(&self, first: &(String, String), labels: &Labels, order: &OrderInfo) -> bool {
        let known = self.labelled.get(first).and_then(|selections| selections.get(labels));
        known.is_some_and(|known| known.at_ms >= order.at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn jobs(jobs: &[JobId]) -> Selection {
        Selection { jobs: jobs.to_vec(), ..Selection::default() }
    }

    fn labelled(pairs: &[(&str, &str)]) -> Selection {
        Selection { labels: labels(pairs), ..Selection::default() }
    }

    fn order(at_ms: i64, by: &str) -> Arc<OrderInfo> {
        Arc::new(OrderInfo { at_ms, by: Some(by.to_owned()) })
    }

    struct Book(Cancelled, Instant);

    impl Book {
        fn new() -> Self {
            let now = Instant::now();
            Self(Cancelled::new(now, usize::MAX), now)
        }

        fn add(&mut self, selection: Selection, at_ms: i64, by: &str) -> bool {
            self.0.add(selection, &order(at_ms, by), self.1).is_new
        }

        /// Returns the sender of the order that cancelled the job.
        fn find(&mut self, job: JobId, pairs: &[(&str, &str)], submitted_ms: i64) -> Option<String> {
            self.0.find(job, &labels(pairs), submitted_ms, self.1).and_then(|order| order.by.clone())
        }
    }

    #[test]
    fn a_job_is_meant_by_its_id_whenever_it_was_submitted_and_the_first_order_stands() {
        let (mut book, job) = (Book::new(), JobId::new());
        assert!(book.add(jobs(&[job]), 1, "anna"));
        assert!(!book.add(jobs(&[job]), 2, "bert"));
        assert_eq!(book.find(job, &[], 3).as_deref(), Some("anna"));
        assert_eq!(book.find(JobId::new(), &[], 0), None);
    }

    #[test]
    fn labels_must_all_be_there_and_the_job_must_have_been_too() {
        let (mut book, job) = (Book::new(), JobId::new());
        let whole = [("team", "a"), ("run", "7"), ("more", "x")];
        assert!(book.add(labelled(&[("team", "a"), ("run", "7")]), 1, "anna"));
        assert_eq!(book.find(job, &whole, 1).as_deref(), Some("anna"));
        assert_eq!(book.find(job, &whole, 2), None, "it came after the order");
        for others in [&[("team", "a")][..], &[("run", "7")], &[("team", "b"), ("run", "7")], &[]] {
            assert_eq!(book.find(job, others, 0), None, "{others:?}");
        }
        assert!(!book.add(Selection::default(), 9, "bert"));
        assert_eq!(book.find(job, &[], 0), None, "no label means no job, not all");
    }

    #[test]
    fn an_order_for_the_same_labels_means_what_was_submitted_since() {
        let (mut book, job) = (Book::new(), JobId::new());
        let run = [("run", "7")];
        assert!(book.add(labelled(&run), 10, "anna"));
        assert!(book.add(labelled(&run), 20, "bert"));
        assert!(!book.add(labelled(&run), 10, "anna"), "it is read again");
        assert_eq!(book.find(job, &run, 15).as_deref(), Some("bert"));
        assert_eq!(book.find(job, &run, 21), None);
        assert_eq!(book.0.young.labelled.len(), 1);
    }

    #[test]
    fn an_order_by_id_and_by_labels_that_are_known_is_new_by_its_id() {
        let (mut book, job) = (Book::new(), JobId::new());
        assert!(book.add(labelled(&[("run", "7")]), 10, "anna"));
        let both = || Selection { jobs: vec![job], ..labelled(&[("run", "7")]) };
        assert!(book.add(both(), 10, "bert"));
        assert!(!book.add(both(), 10, "bert"));
        assert_eq!(book.find(job, &[], 11).as_deref(), Some("bert"));
    }

    #[test]
    fn what_the_log_has_forgotten_is_forgotten_here_too() {
        let (mut book, early, late) = (Book::new(), JobId::new(), JobId::new());
        let run = [("run", "7")];
        book.add(jobs(&[early]), 1, "anna");
        book.add(labelled(&run), 1, "anna");
        book.1 += KEPT - Duration::from_secs(1);
        book.add(jobs(&[late]), 2, "bert");
        book.1 += Duration::from_secs(1);
        for job in [early, late] {
            assert!(book.find(job, &[], 0).is_some(), "as long as the log");
        }
        assert!(!book.add(labelled(&run), 1, "anna"), "it is known still");
        book.1 += KEPT;
        assert_eq!(book.find(early, &[], 0), None);
        assert_eq!(book.find(late, &[], 0), None);
        assert!(book.find(early, &run, 0).is_some(), "it stood in the log again");
        book.1 += KEPT;
        assert_eq!(book.find(early, &run, 0), None);
    }

    #[test]
    fn many_cancellations_take_bounded_memory_and_the_newest_are_remembered() {
        const ORDERS: usize = 1_000;
        const JOBS: usize = 1_000;
        const BYTES_MAX: usize = 4 << 20;
        let now = Instant::now();
        let mut book = Cancelled::new(now, BYTES_MAX);
        let (mut last, mut forgot) = (Vec::new(), 0);
        for _ in 0..ORDERS {
            last = (0..JOBS).map(|_| JobId::new()).collect();
            forgot += usize::from(book.add(jobs(&last), &order(1, "anna"), now).forgot);
            assert!(book.young.jobs.len() + book.old.jobs.len() <= 2 * (BYTES_MAX / JOB_BYTES + JOBS));
        }
        assert!(forgot > 0);
        assert!(last.iter().all(|job| book.find(*job, &BTreeMap::new(), 0, now).is_some()));
        for run in 0..ORDERS {
            book.add(labelled(&[("team", "a"), ("run", &run.to_string())]), &order(1, "anna"), now);
        }
        let compared = |generation: &Generation| generation.labelled.values().map(HashMap::len).sum::<usize>();
        assert!(compared(&book.young) + compared(&book.old) <= 2 * BYTES_MAX / LABELS_BYTES_MIN + 2);
    }
}
