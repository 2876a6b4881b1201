//! A cell for the result of a program that is compiled once for all concurrent requests.
//!
//! The first request that gets a turn compiles it. The others wait for the outcome and hold neither a compiler nor a place in their pool's
//! queue. If the first request is cancelled, the others wait for a turn again.

use tokio::sync::watch;

/// A cell that is filled once, with a success or a failure.
#[derive(Debug)]
pub(super) struct Cell<T>(watch::Sender<Progress<T>>);

#[derive(Debug)]
enum Progress<T> {
    Untouched,
    InTheMaking,
    Done(T),
}

/// The right to fill a cell. Dropping it without a result leaves the cell to other requests.
struct Making<'a, T>(&'a Cell<T>);

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self(watch::Sender::new(Progress::Untouched))
    }
}

impl<T: Clone> Cell<T> {
    /// Returns the value, if the cell is filled.
    pub(super) fn get(&self) -> Option<T> {
        self.0.borrow().done().cloned()
    }

    /// Returns the value. If no other request makes it, makes it with `make`, which runs while a `turn` is held.
    pub(super) async fn get_or_make<Turn: Future>(&self, turn: impl Fn() -> Turn, make: impl Future<Output = T>) -> T {
        let mut progress = self.0.subscribe();
        loop {
            let settled = progress.wait_for(|progress| !matches!(progress, Progress::InTheMaking)).await;
            if let Some(done) = settled.expect(SENDER_IS_HERE).done() {
                return done.clone();
            }
            let _turn = tokio::select! {
                biased;
                begun = progress.wait_for(|progress| !matches!(progress, Progress::Untouched)) => {
                    begun.expect(SENDER_IS_HERE);
                    continue;
                }
                turn = turn() => turn,
            };
            let Some(making) = self.begin() else { continue };
            return making.done(make.await);
        }
    }

    fn begin(&self) -> Option<Making<'_, T>> {
        let begin = |progress: &mut Progress<T>| {
            let is_free = matches!(progress, Progress::Untouched);
            if is_free {
                *progress = Progress::InTheMaking;
            }
            is_free
        };
        // Created only for the request that begins, because dropping it removes the marker of the request that makes the value.
        self.0.send_if_modified(begin).then(|| Making(self))
    }
}

const SENDER_IS_HERE: &str = "the sender is the cell itself";

impl<T> Cell<T> {
    /// Reads the value without copying it.
    pub(super) fn look<R>(&self, at: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.borrow().done().map(at)
    }
}

impl<T> Progress<T> {
    fn done(&self) -> Option<&T> {
        match self {
            Self::Done(outcome) => Some(outcome),
            Self::Untouched | Self::InTheMaking => None,
        }
    }
}

impl<T: Clone> Making<'_, T> {
    fn done(self, outcome: T) -> T {
        self.0.0.send_replace(Progress::Done(outcome.clone()));
        outcome
    }
}

impl<T> Drop for Making<'_, T> {
    fn drop(&mut self) {
        let leave = |progress: &mut Progress<T>| {
            let is_unfinished = matches!(progress, Progress::InTheMaking);
            if is_unfinished {
                *progress = Progress::Untouched;
            }
            is_unfinished
        };
        self.0.0.send_if_modified(leave);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        pin::pin,
    };

    use futures::{FutureExt as _, poll};
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_anothers_making_holds_no_turn() {
        let (cell, turns, finish) = (Cell::default(), Semaphore::new(2), Semaphore::new(0));
        let turn = || turns.acquire();
        let slow = async {
            finish.acquire().await.unwrap().forget();
            1
        };
        let mut first = pin!(cell.get_or_make(turn, slow));
        let mut second = pin!(cell.get_or_make(turn, ready(2)));
        let mut third = pin!(cell.get_or_make(turn, ready(3)));
        assert!(poll!(first.as_mut()).is_pending());
        assert!(poll!(second.as_mut()).is_pending() && poll!(third.as_mut()).is_pending());
        assert_eq!(turns.available_permits(), 1, "one request makes it, and no other has a turn");
        finish.add_permits(1);
        assert_eq!((first.await, second.await, third.await), (1, 1, 1));
        assert_eq!(cell.get(), Some(1));
    }

    #[tokio::test]
    async fn who_stands_in_a_line_gets_what_another_has_made_meanwhile() {
        let cell = Cell::default();
        let mut waits = pin!(cell.get_or_make(pending::<()>, ready(1)));
        assert!(poll!(waits.as_mut()).is_pending());
        assert_eq!(cell.get_or_make(|| ready(()), ready(2)).await, 2);
        assert_eq!(waits.now_or_never(), Some(2));
    }

    #[tokio::test]
    async fn a_maker_who_gives_up_leaves_it_to_the_next() {
        let cell = Cell::default();
        let mut gives_up = Box::pin(cell.get_or_make(|| ready(()), pending()));
        let mut next = pin!(cell.get_or_make(|| ready(()), ready(2)));
        assert!(poll!(gives_up.as_mut()).is_pending() && poll!(next.as_mut()).is_pending());
        drop(gives_up);
        assert_eq!(next.now_or_never(), Some(2));
        assert_eq!(cell.get_or_make(|| ready(()), ready(3)).await, 2, "it is filled once");
    }

    #[test]
    fn who_comes_second_leaves_it_to_the_first() {
        let cell = Cell::<u32>::default();
        let first = cell.begin();
        assert!(first.is_some());
        for _ in 0..2 {
            assert!(cell.begin().is_none(), "it is in the making");
        }
        drop(first);
        assert!(cell.begin().is_some());
    }
}
