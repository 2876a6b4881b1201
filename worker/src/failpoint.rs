//! Points at which a test can make a worker die as by `kill -9`, or panic as by a bug. What happens to a job depends on where between its
//! delivery and its acknowledgement the worker dies, and an outside signal can't hit such a point.
//!
//! `GPUFLEET_WORKER_DIES=after-reply:3` means the third time that any job reaches the point. Only builds with debug assertions have
//! failpoints; a release ignores the variable.

/// A point between two steps of handling a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failpoint {
    BeforeDecode,
    /// The job has a slot on a device; the executor has not received it.
    BeforeKernel,
    /// The kernel has run; the reply has not been published.
    AfterKernel,
    /// The reply is confirmed; the final event has not been published.
    AfterReply,
    /// Both are confirmed; the message is not acknowledged.
    AfterEvents,
    /// The worker panics here while it handles a message, without holding a shared lock.
    Handling,
    /// The worker panics here while the scheduler handles a new job.
    Scheduling,
}

#[cfg(not(debug_assertions))]
pub(crate) fn reach(_: Failpoint) {}
#[cfg(not(debug_assertions))]
pub(crate) async fn hold(_: Failpoint) {}

#[cfg(debug_assertions)]
pub(crate) use armed::{hold, reach};

#[cfg(debug_assertions)]
mod armed {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };

    use rustix::process::{Signal, getpid, kill_process};

    use super::Failpoint;

    const VARIABLE: &str = "GPUFLEET_WORKER_DIES";

    struct Armed {
        at: Failpoint,
        /// How often the point must still be reached until it triggers.
        left: AtomicU32,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).ok()?;
        Some(parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text} is not a failpoint; use PLACE or PLACE:COUNT")))
    });

    /// Marks that the worker has reached the point, which may kill the process.
    pub(crate) fn reach(place: Failpoint) {
        let Some(armed) = ARMED.as_ref().filter(|armed| armed.at == place) else { return };
        if armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            assert!(!matches!(place, Failpoint::Handling | Failpoint::Scheduling), "{VARIABLE} names {place:?}");
            kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
        }
    }

    /// Waits forever if the worker dies the next time it reaches the point, so that work in parallel to that point is not done.
    pub(crate) async fn hold(place: Failpoint) {
        let is_next = |armed: &&Armed| armed.at == place && armed.left.load(Ordering::Relaxed) == 1;
        if ARMED.as_ref().filter(is_next).is_some() {
            std::future::pending().await
        }
    }

    fn parse(text: &str) -> Option<Armed> {
        let (place, count) = match text.split_once(':') {
            Some((place, count)) => (place, count.parse().ok().filter(|count| *count > 0)?),
            None => (text, 1),
        };
        let at = match place {
            "before-decode" => Failpoint::BeforeDecode,
            "before-kernel" => Failpoint::BeforeKernel,
            "after-kernel" => Failpoint::AfterKernel,
            "after-reply" => Failpoint::AfterReply,
            "after-events" => Failpoint::AfterEvents,
            "handling" => Failpoint::Handling,
            "scheduling" => Failpoint::Scheduling,
            _ => return None,
        };
        Some(Armed { at, left: AtomicU32::new(count) })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_place_is_named_with_the_time_that_counts() {
            let armed = parse("after-reply:3").unwrap();
            assert_eq!((armed.at, armed.left.into_inner()), (Failpoint::AfterReply, 3));
            assert_eq!(parse("before-kernel").unwrap().left.into_inner(), 1);
            for text in ["", "nowhere", "after-reply:0", "after-reply:x"] {
                assert!(parse(text).is_none(), "{text:?}");
            }
        }
    }
}
