//! The device classes that workers have announced, by pool.

use std::collections::HashMap;

use gpufleet_schema::{Announcement, ClassKey, DeviceClass, PoolName, bounds::TEXT_BYTES_MAX};

use super::Need;

/// Maximum number of entries (pairs of pool and class). A class is a kind of GPU, so a fleet has few. At the limit, the oldest announcement
/// is dropped.
const ENTRIES_MAX: usize = 4096;
/// Age at which an announcement is repeated, in milliseconds. The control stream keeps messages for 7 days, and after a deletion of the
/// stream all announcements are back within this time.
const REPEATED_AFTER_MS: i64 = 6 * 3600 * 1000;
/// Maximum length of the fleet's description in a failure message, in bytes.
const TEXT_MAX: usize = 1024;

/// The announced device classes of all pools.
#[derive(Debug, Default)]
pub struct Roster {
    entries: HashMap<(PoolName, ClassKey), Entry>,
    /// The number of announcements read.
    heard: u64,
}

#[derive(Debug)]
struct Entry {
    class: DeviceClass,
    at_ms: i64,
    /// The number of the last announcement with this class.
    heard: u64,
}

impl Roster {
    /// Records an announcement. Announcements come in the order of the stream; `at_ms` is the time by the sender's clock.
    pub fn hear(&mut self, announcement: Announcement, at_ms: i64) {
        self.heard += 1;
        let Announcement { pools, classes } = announcement;
        // Device names are short, so a longer name was not written by a worker.
        for class in classes.into_iter().filter(|class| class.name.len() <= TEXT_BYTES_MAX) {
            for pool in &pools {
                let entry = Entry { class: class.clone(), at_ms, heard: self.heard };
                self.entries.insert((pool.clone(), class.key), entry);
                self.forget_oldest();
            }
        }
    }

    /// Returns the classes of a pool, in a stable order.
    pub fn classes(&self, pool: &PoolName) -> Vec<DeviceClass> {
        let of_pool = self.entries.iter().filter(|((of, _), _)| of == pool);
        let mut classes: Vec<_> = of_pool.map(|(_, entry)| entry.class.clone()).collect();
        classes.sort_by_key(|class| class.key);
        classes
    }

    /// Returns the classes of a pool that can run a job.
    pub fn fitting(&self, pool: &PoolName, need: Need<'_>) -> Vec<DeviceClass> {
        let mut classes = self.classes(pool);
        classes.retain(|class| need.is_met_by(class));
        classes
    }

    /// Returns whether a worker with these pools and classes has to announce them, for the first time or again.
    pub fn is_due(&self, announcement: &Announcement, now_ms: i64) -> bool {
        let is_fresh = |pool: &PoolName, class: ClassKey| {
            let entry = self.entries.get(&(pool.clone(), class));
            // Compare the absolute difference, because a sender's clock that is far ahead must not suppress announcements forever.
            entry.is_some_and(|entry| now_ms.abs_diff(entry.at_ms) < REPEATED_AFTER_MS.unsigned_abs())
        };
        let Announcement { pools, classes } = announcement;
        pools.iter().any(|pool| classes.iter().any(|class| !is_fresh(pool, class.key)))
    }

    fn forget_oldest(&mut self) {
        if self.entries.len() > ENTRIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.heard).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.entries.remove(&oldest));
        }
    }
}

/// Describes the classes that have workers, with their number of workers, for a failure message.
pub fn describe(classes: &[(DeviceClass, u32)]) -> String {
    let live = classes.iter().filter(|(_, workers)| *workers > 0);
    let mut told = Vec::new();
    let (mut bytes, mut untold) = (0, 0);
    for (class, workers) in live {
        let text = format!("{workers} × {class}");
        bytes += text.len();
        if bytes <= TEXT_MAX { told.push(text) } else { untold += 1 }
    }
    if untold > 0 {
        told.push(format!("{untold} more device classes"));
    }
    if told.is_empty() { "no device in service".to_owned() } else { told.join("; ") }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::Requires;

    use super::*;

    fn class(memory_bytes: u64) -> DeviceClass {
        DeviceClass::new("GPU", [8, 0], memory_bytes, false)
    }

    fn announcement(pools: &[&str], classes: &[DeviceClass]) -> Announcement {
        Announcement { pools: pools.iter().map(|pool| pool.parse().unwrap()).collect(), classes: classes.to_vec() }
    }

    #[test]
    fn a_class_is_known_once_however_often_it_is_announced_and_by_pool() {
        let mut roster = Roster::default();
        for at_ms in 0..3 {
            roster.hear(announcement(&["a", "b"], &[class(1), class(2)]), at_ms);
        }
        roster.hear(announcement(&["b"], &[class(3)]), 0);
        let requires = Requires::default();
        let fitting = |pool: &str, memory_bytes_min| {
            let need = Need { requires: &requires, blob_store: false, memory_bytes_min };
            roster.fitting(&pool.parse().unwrap(), need).len()
        };
        assert_eq!([fitting("a", 0), fitting("b", 0), fitting("c", 0)], [2, 3, 0]);
        assert_eq!([fitting("a", 2), fitting("a", 3), fitting("b", 3)], [1, 0, 1]);
    }

    #[test]
    fn an_announcement_is_due_until_it_was_read_and_again_when_it_is_old() {
        let mut roster = Roster::default();
        let own = announcement(&["a"], &[class(1), class(2)]);
        assert!(roster.is_due(&own, 0));
        roster.hear(announcement(&["a"], &[class(1)]), 0);
        assert!(roster.is_due(&own, 0), "one class is missing");
        roster.hear(announcement(&["a"], &[class(2)]), 0);
        assert!(!roster.is_due(&own, REPEATED_AFTER_MS - 1), "another worker has announced it");
        assert!(roster.is_due(&own, REPEATED_AFTER_MS));
        roster.hear(own.clone(), 100 * REPEATED_AFTER_MS);
        assert!(roster.is_due(&own, REPEATED_AFTER_MS), "that clock is wrong");
    }

    #[test]
    fn of_too_many_announcements_the_oldest_are_forgotten() {
        let mut roster = Roster::default();
        let many = ENTRIES_MAX as u64 + 10;
        for memory_bytes in 0..many {
            roster.hear(announcement(&["a"], &[class(memory_bytes)]), 0);
        }
        let known = roster.classes(&"a".parse().unwrap());
        assert_eq!(known.len(), ENTRIES_MAX);
        assert_eq!(known.iter().map(|class| class.memory_bytes).min(), Some(10));
        let endless = DeviceClass::new(&"x".repeat(TEXT_BYTES_MAX + 1), [8, 0], 1, false);
        roster.hear(announcement(&["b"], &[endless]), 0);
        assert!(roster.classes(&"b".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_failure_names_the_classes_that_have_workers_in_bounded_text() {
        assert_eq!(describe(&[(class(1), 0)]), "no device in service");
        let text = describe(&[(class(1), 2), (class(2), 0), (class(3), 1)]);
        assert_eq!(text, "2 × GPU (compute capability 8.0, 1 bytes); 1 × GPU (compute capability 8.0, 3 bytes)");
        let many: Vec<_> = (0..100).map(|memory_bytes| (class(memory_bytes), 1)).collect();
        let text = describe(&many);
        assert!(text.len() < TEXT_MAX + 200 && text.ends_with("more device classes"), "{text}");
    }
}
