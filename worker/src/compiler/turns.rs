//! Shares the compilers among pools.
//!
//! Each pool has a queue of its own, and only the first few requests of each pool wait in the common queue for compilers. So however many
//! slow compilations a pool has, the next one of another pool waits for only a few of them.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::scheduler::PoolId;

/// Maximum number of compilers at once. Each takes a core and some hundreds of megabytes for tens of milliseconds.
const COMPILERS_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Turns {
    compilers: Semaphore,
    /// The semaphore of each pool, which limits its requests in the common queue.
    shares: Vec<Semaphore>,
}

/// The right to compile until dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _share: SemaphorePermit<'a>,
    _compiler: SemaphorePermit<'a>,
}

impl Turns {
    /// Creates the queues. If there are several pools, no pool may use all compilers.
    pub(super) fn new(pools: usize) -> Self {
        let share = if pools > 1 { COMPILERS_MAX - 1 } else { COMPILERS_MAX };
        Self {
            compilers: Semaphore::new(COMPILERS_MAX),
            shares: (0..pools.max(1)).map(|_| Semaphore::new(share)).collect(),
        }
    }

    /// Waits for a compiler. Cancelling leaves the queue.
    pub(super) async fn take(&self, pool: PoolId) -> Turn<'_> {
        let share = &self.shares[pool.0 as usize];
        let _share = share.acquire().await.expect("the semaphore is never closed");
        let _compiler = self.compilers.acquire().await.expect("the semaphore is never closed");
        Turn { _share, _compiler }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt as _, poll};

    use super::*;

    #[tokio::test]
    async fn a_pool_alone_has_all_compilers_and_one_of_several_does_not() {
        for (pools, most) in [(1, COMPILERS_MAX), (2, COMPILERS_MAX - 1)] {
            let turns = Turns::new(pools);
            let had: Vec<_> = (0..10).map_while(|_| turns.take(PoolId(0)).now_or_never()).collect();
            assert_eq!(had.len(), most);
        }
    }

    #[tokio::test]
    async fn a_pool_waits_for_a_few_of_anothers_and_not_for_all() {
        let turns = Turns::new(3);
        let mut first: Vec<_> = (0..100).map(|_| Box::pin(turns.take(PoolId(0)))).collect();
        let mut had: Vec<_> = first.iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        let second = turns.take(PoolId(1)).now_or_never();
        assert!(second.is_some(), "one compiler is left to it");
        let mut third = pin!(turns.take(PoolId(2)));
        assert!(poll!(third.as_mut()).is_pending());
        had.pop();
        assert!(poll!(third.as_mut()).is_ready(), "nobody of the first pool stands before it");
    }
}
