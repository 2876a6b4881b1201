//! Places where a worker dies when a test wants it to, as by kill -9: what becomes of a job depends on where between its delivery and
//! its acknowledgement the worker is lost, and no outside signal hits such a place. At two places it panics, as by a defect of ours.
//!
//! `GPUFLEET_WORKER_DIES=after-reply:3` means the third time that any job gets there. Only builds with debug assertions have it:
//! in a release nothing is compiled, and the variable means nothing.

/// Between which steps of a message's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failpoint {
    BeforeDecode,
    /// The job has its place on a device, the executor has not got it.
    BeforeKernel,
    /// The kernel has run, its reply has not left.
    AfterKernel,
    /// The reply is confirmed, the final event has not left.
    AfterReply,
    /// Both are confirmed, the message is not acknowledged.
    AfterEvents,
    /// A panic: a message is being handled, and no state is locked that others share.
    Handling,
    /// A panic: the scheduler looks at a job that has just arrived.
    Scheduling,
}

#[cfg(not(debug_assertions))]
pub(crate) fn reach(_: Failpoint) {}

#[cfg(debug_assertions)]
pub(crate) use armed::reach;

#[cfg(debug_assertions)]
mod armed {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };

    use super::Failpoint;

    const VARIABLE: &str = "GPUFLEET_WORKER_DIES";

    struct Armed {
        at: Failpoint,
        /// Times that the place is still passed unharmed, and this one.
        left: AtomicU32,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).ok()?;
        Some(parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text} is not a failpoint; use PLACE or PLACE:COUNT")))
    });

    /// The worker is here. It may not be any more afterwards.
    pub(crate) fn reach(place: Failpoint) {
        let Some(armed) = ARMED.as_ref().filter(|armed| armed.at == place) else { return };
        if armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            assert!(!matches!(place, Failpoint::Handling | Failpoint::Scheduling), "{VARIABLE} names {place:?}");
            // SAFETY: neither call has preconditions; this process is the one that ends.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
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
