//! Turns of downloads. Each holds an output in memory, so only a few go on at a time.
//!
//! While a viewer waits for a turn, a download whose viewer has stopped reading loses its own. A viewer has few downloads waiting, so a
//! viewer who asks again and again does not get ahead of the others.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use gpufleet_service::{
    problem::{Problem, ProblemKind},
    server::Hangup,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep, timeout},
};

/// An output has at most 256 MiB.
const DOWNLOADS_MAX: usize = 4;
/// Of one viewer.
const WAITING_MAX: usize = 8;
/// How long a download waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(30);
/// A viewer who takes nothing of a download for this long has stopped reading. A slow one takes the next part before.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// The time between looks for such viewers.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Who waits: the name of a viewer, and the address, because viewers may share a name.
pub(crate) type Asker = (IpAddr, String);

#[derive(Debug)]
pub(crate) struct Downloads {
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Asker, usize>,
    going: HashMap<u64, Going>,
    next_number: u64,
}

/// A download that has its turn.
#[derive(Debug)]
struct Going {
    /// When its viewer last took a part. None before the first.
    moved: Option<Instant>,
    connection: Hangup,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    downloads: Arc<Downloads>,
    number: u64,
}

/// Counts a download that waits.
struct Waiting<'a> {
    downloads: &'a Downloads,
    asker: Asker,
}

impl Downloads {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { turns: Semaphore::new(DOWNLOADS_MAX), state: Mutex::default() })
    }

    /// Waits for a turn of a download over this connection. If cancelled, the download has none.
    pub(crate) async fn turn(self: &Arc<Self>, asker: Asker, connection: Hangup) -> Result<Turn, Problem> {
        let _waiting = self.wait(asker)?;
        let permit = timeout(TURN_WITHIN, self.permit()).await.map_err(|_| busy("other downloads go on"))?;
        permit.forget();
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.going.insert(number, Going { moved: None, connection });
        Ok(Turn { downloads: Arc::clone(self), number })
    }

    async fn permit(&self) -> SemaphorePermit<'_> {
        let mut permit = std::pin::pin!(self.turns.acquire());
        loop {
            tokio::select! {
                biased;
                permit = &mut permit => return permit.expect("the semaphore is never closed"),
                () = sleep(LOOK_EVERY) => self.end_stalled(),
            }
        }
    }

    /// Ends the download that has stood still for longest, if one has.
    fn end_stalled(&self) {
        let state = self.state();
        let stalled = state.going.values().filter_map(|going| Some((going.moved?, &going.connection)));
        if let Some((moved, connection)) = stalled.min_by_key(|(moved, _)| *moved)
            && moved.elapsed() >= STALLED_AFTER
        {
            tracing::info!("ended a download whose viewer has stopped reading, because others wait");
            connection.hang_up();
        }
    }

    fn wait(&self, asker: Asker) -> Result<Waiting<'_>, Problem> {
        let mut state = self.state();
        let count = state.waiting.entry(asker.clone()).or_default();
        if *count >= WAITING_MAX {
            return Err(busy("as many downloads of yours wait already"));
        }
        *count += 1;
        Ok(Waiting { downloads: self, asker })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

impl Turn {
    /// The viewer takes a part.
    pub(crate) fn moved(&self) {
        if let Some(going) = self.downloads.state().going.get_mut(&self.number) {
            going.moved = Some(Instant::now());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.downloads.state().going.remove(&self.number);
        self.downloads.turns.add_permits(1);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.downloads.state();
        if let Some(count) = state.waiting.get_mut(&self.asker) {
            *count -= 1;
            if *count == 0 {
                state.waiting.remove(&self.asker);
            }
        }
    }
}

fn busy(why: &'static str) -> Problem {
    Problem::new(
        ProblemKind::Overloaded,
        "The output can't be sent now",
        why,
        "try again in a minute, or use `gpufleet fetch`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anna() -> Asker {
        ([10, 0, 0, 1].into(), "anna".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_that_stand_still_lose_their_turns_to_those_that_wait() {
        let downloads = Downloads::new();
        let mut connections = Vec::new();
        let mut turns = Vec::new();
        for _ in 0..DOWNLOADS_MAX {
            let connection = Hangup::default();
            let turn = downloads.turn(anna(), connection.clone()).await.unwrap();
            turn.moved();
            connections.push(connection);
            turns.push(turn);
        }
        // One goes on.
        let moving = turns.pop().unwrap();
        let go_on = tokio::spawn(async move {
            loop {
                sleep(STALLED_AFTER / 2).await;
                moving.moved();
            }
        });
        // The others end when their connection does.
        for (turn, connection) in turns.into_iter().zip(connections.clone()) {
            tokio::spawn(async move {
                connection.hung_up().await;
                drop(turn);
            });
        }
        let begun = Instant::now();
        for _ in 1..DOWNLOADS_MAX {
            std::mem::forget(downloads.turn(anna(), Hangup::default()).await.unwrap());
        }
        assert!(begun.elapsed() <= STALLED_AFTER + 4 * LOOK_EVERY, "{:?}", begun.elapsed());
        assert!(!connections[DOWNLOADS_MAX - 1].is_hung_up(), "it goes on");
        go_on.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_has_few_downloads_waiting_and_none_for_ever() {
        let downloads = Downloads::new();
        for _ in 0..DOWNLOADS_MAX {
            // Not yet read from the store, so not stalled.
            std::mem::forget(downloads.turn(anna(), Hangup::default()).await.unwrap());
        }
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let downloads = Arc::clone(&downloads);
                tokio::spawn(async move { downloads.turn(anna(), Hangup::default()).await.map(drop) })
            })
            .collect();
        sleep(LOOK_EVERY).await;
        let refused = downloads.turn(anna(), Hangup::default()).await.unwrap_err();
        assert!(refused.detail.contains("yours"), "{refused}");
        for waiting in waiting {
            let refused = waiting.await.unwrap().unwrap_err();
            assert!(refused.detail.contains("other downloads"), "{refused}");
        }
        assert!(downloads.state().waiting.is_empty());
    }
}
