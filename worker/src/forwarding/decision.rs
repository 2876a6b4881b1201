//! Which class a job is forwarded to, and how long it waits where there is none.

use gpufleet_schema::{
    ClassKey,
    topology::{Rung, retry_rung},
};

use super::ForwardingHistory;

/// A class that can run the job, and what the broker says about its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub class: ClassKey,
    /// Jobs that wait there.
    pub messages: u32,
    /// Workers besides the one that decides.
    pub consumers: u32,
    /// The one that decides has such a device as well. It could not hold the job, and another one's free memory may differ a little.
    pub is_own: bool,
}

/// What a job that finds no worker can hope for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// A class that fits has been announced, and its workers may come back; or a worker is there that has announced nothing.
    Open,
    /// Everything that the pool's workers have is known, and nothing of it fits.
    Closed,
}

/// A job needs one or two forwards: one to a class, and one more each time that the class loses its last worker. This many mean that workers
/// disagree about who can run it, as they may while versions are mixed. From then on it only waits.
const FORWARDS_MAX: u32 = 16;
/// The first waits take a second: a worker that has just started may not be known yet. The others take five.
const SHORT_WAITS: u32 = 3;
/// Two minutes together, for a pool whose only fitting workers are starting.
const WAITS_MAX: u32 = 27;
/// A worker whose prefetch changes ends its subscription and makes a new one: for a moment the broker does not count it.
const WAITS_MAX_CLOSED: u32 = 1;

/// The class with the fewest waiting jobs for each of its workers. `dice` choose among equals.
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

/// The wait before the job is looked at again; none once it has waited long enough.
pub fn wait(history: ForwardingHistory, outlook: Outlook) -> Option<Rung> {
    let waits_max = match outlook {
        Outlook::Open => WAITS_MAX,
        Outlook::Closed => WAITS_MAX_CLOSED,
    };
    (history.waits < waits_max).then(|| retry_rung(if history.waits < SHORT_WAITS { 1 } else { 2 }))
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
