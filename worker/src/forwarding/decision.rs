//! Decides to which class a job is forwarded, and how long it waits if there is none.

use gpufleet_schema::{
    ClassKey,
    topology::{Rung, retry_rung},
};

use super::ForwardingHistory;

/// A class that can run the job, with the depth of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub class: ClassKey,
    /// Number of jobs waiting in the queue.
    pub messages: u32,
    /// Number of workers of the class, without this one.
    pub consumers: u32,
    /// Whether this worker has such a device too. The job did not fit on it, but another one may have slightly more free memory.
    pub is_own: bool,
}

/// Whether a job without a fitting worker should keep waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// A fitting class was announced and its workers may return, or some worker has not announced its classes.
    Open,
    /// All devices of the pool's workers are known, and none fits.
    Closed,
}

/// Maximum number of forwards of a job; after that it only waits. A job needs one forward, and one more each time its class loses its last
/// worker. This many mean that workers disagree about which class can run it, which mixed versions may cause.
const FORWARDS_MAX: u32 = 16;
/// Number of waits of one second, because a worker that has just started may not be known yet. Later waits take five seconds.
const SHORT_WAITS: u32 = 3;
/// Maximum number of waits while the outlook is open: two minutes in total, for a pool whose only fitting workers are starting.
const WAITS_MAX: u32 = 27;
/// Maximum number of waits of a session that no known device fits. Workers with equal devices may give sessions different parts of them.
const SESSION_WAITS_MAX: u32 = 3;
/// Maximum number of waits while the outlook is closed. One, because a worker that changes its prefetch subscribes again and for a moment
/// does not count as a consumer.
const WAITS_MAX_CLOSED: u32 = 1;

/// Chooses the class with the fewest waiting jobs per worker; `dice` chooses among equals. Returns `None` if no class has a worker, or the
/// job was forwarded too often.
pub fn choose(candidates: &[Candidate], history: ForwardingHistory, dice: u64) -> Option<ClassKey> {
    if history.forwards >= FORWARDS_MAX {
        return None;
    }
    let load = |candidate: &Candidate| {
        let waiting = u64::from(candidate.messages) * u64::from(u16::MAX) / u64::from(candidate.consumers);
        (candidate.is_own, waiting)
    };
    let live = || candidates.iter().filter(|candidate| candidate.consumers > 0);
    let least = live().map(load).min()?;
    let best: Vec<_> = live().filter(|candidate| load(candidate) == least).collect();
    Some(best[(dice % best.len() as u64) as usize].class)
}

/// Returns the delay before the next decision, or `None` if the job has waited long enough.
pub fn wait(history: ForwardingHistory, outlook: Outlook) -> Option<Rung> {
    let waits_max = match outlook {
        Outlook::Open => WAITS_MAX,
        Outlook::Closed => WAITS_MAX_CLOSED,
    };
    (history.waits < waits_max).then(|| retry_rung(if history.waits < SHORT_WAITS { 1 } else { 2 }))
}

/// Returns the delay before another worker looks at a session for which this worker has no device, or `None` if enough have looked.
/// Sessions have one queue, so any worker of the pool may be next. `others_fit` if devices of another class may take it.
pub fn wait_of_session(history: ForwardingHistory, others_fit: bool) -> Option<Rung> {
    (others_fit || history.waits < SESSION_WAITS_MAX)
        .then(|| retry_rung(if history.waits < SHORT_WAITS { 1 } else { 2 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(class: &str, messages: u32, consumers: u32) -> Candidate {
        Candidate { class: key(class), messages, consumers, is_own: false }
    }

    fn key(class: &str) -> ClassKey {
        class.repeat(16).parse().unwrap()
    }

    #[test]
    fn the_class_with_the_least_to_do_for_each_worker_is_chosen_if_it_has_any() {
        let choose = |candidates: &[Candidate]| choose(candidates, ForwardingHistory::default(), 0);
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[candidate("a", 0, 0)]), None);
        assert_eq!(choose(&[candidate("a", 0, 0), candidate("b", 900, 1)]), Some(key("b")));
        assert_eq!(choose(&[candidate("a", 20, 10), candidate("b", 3, 1)]), Some(key("a")));
        let own = Candidate { is_own: true, ..candidate("a", 0, 9) };
        assert_eq!(choose(&[own, candidate("b", 99, 1)]), Some(key("b")), "this worker could not hold it");
        assert_eq!(choose(&[own]), Some(key("a")));
    }

    #[test]
    fn a_session_looks_for_its_worker_as_long_as_there_may_be_one() {
        let waited = |waits| ForwardingHistory { forwards: 0, waits };
        assert_eq!(wait_of_session(waited(0), false).map(|rung| rung.seconds), Some(1));
        assert_eq!(wait_of_session(waited(SESSION_WAITS_MAX), false), None);
        assert_eq!(wait_of_session(waited(1000), true).map(|rung| rung.seconds), Some(5));
    }

    #[test]
    fn among_equals_the_dice_choose() {
        let equal = [candidate("a", 0, 1), candidate("b", 0, 7)];
        let chosen = |dice| choose(&equal, ForwardingHistory::default(), dice);
        assert_eq!([chosen(0), chosen(1)], [Some(key("a")), Some(key("b"))]);
    }

    #[test]
    fn a_job_that_is_sent_to_and_fro_waits_in_the_end() {
        let history = |forwards| ForwardingHistory { forwards, waits: 0 };
        let chosen = |forwards| choose(&[candidate("a", 0, 1)], history(forwards), 0);
        assert!(chosen(FORWARDS_MAX - 1).is_some());
        assert!(chosen(FORWARDS_MAX).is_none());
    }

    #[test]
    fn a_job_waits_for_two_minutes_where_there_is_hope_and_for_a_second_where_there_is_none() {
        let waited = |outlook| {
            let (mut history, mut seconds) = (ForwardingHistory::default(), 0);
            while let Some(rung) = wait(history, outlook) {
                seconds += rung.seconds;
                history = history.waited();
            }
            seconds
        };
        assert_eq!(waited(Outlook::Open), 123);
        assert_eq!(waited(Outlook::Closed), 1);
    }
}
