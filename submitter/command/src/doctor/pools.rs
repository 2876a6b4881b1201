//! The pools: whether workers serve them, and what waits in them.

use std::collections::BTreeSet;

use gpufleet::schema::{PoolName, Priority, topology};
use gpufleet_ledger::{WorkerRow, WorkerState};
use gpufleet_transport::{Broker, QueueDepth, QueueError};

use super::{super::complaint::chain, finding::Finding};

/// The queues of a pool, according to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDepths {
    pub pool: PoolName,
    /// None if no worker has ever declared its queues.
    pub depth: Result<Option<QueueDepth>, String>,
    /// The queue of its host programs. None if no worker has ever run some.
    pub programs: Result<Option<QueueDepth>, String>,
}

impl PoolDepths {
    pub async fn of_all(broker: &Broker, pools: BTreeSet<PoolName>) -> Vec<Self> {
        let mut all = Vec::new();
        for pool in pools {
            let depth = depth(broker, &pool).await.map_err(|error| chain(&error));
            let programs = broker.queue_depth(&topology::program_queue(&pool)).await.map_err(|error| chain(&error));
            all.push(Self { pool, depth, programs });
        }
        all
    }

    fn has_messages(&self) -> bool {
        matches!(self.depth, Ok(Some(QueueDepth { messages: 1.., .. })))
    }

    /// `up` is the number of workers of the pool by their heartbeats, if the ledger knows it.
    fn judge(&self, up: Option<usize>) -> Finding {
        let pool = &self.pool;
        let check = format!("pool {pool}");
        let start = format!("start a worker: gpufleet-worker run --pool {pool}");
        match &self.depth {
            Err(problem) => Finding::explained(check, problem),
            Ok(None) => Finding::error(check, "no worker has ever served it, so its jobs are refused").fix(start),
            Ok(Some(QueueDepth { messages, consumers: 0 })) => match (messages, up) {
                (0, _) => Finding::warning(check, "no worker serves it, and nothing waits").fix(start),
                (waiting, Some(up @ 1..)) => {
                    Finding::error(check, format!("{}, but no worker takes them", waits(*waiting)))
                        .fix(format!("{up} of its workers send heartbeats, so look at their logs"))
                }
                (waiting, _) => {
                    Finding::error(check, format!("{}, and no worker serves it", waits(*waiting))).fix(start)
                }
            },
            Ok(Some(QueueDepth { messages, .. })) => {
                // Subscriptions are not workers: one worker may have several.
                let workers = match up {
                    Some(1) => "1 worker serves it".to_owned(),
                    Some(up @ 2..) => format!("{up} workers serve it"),
                    Some(0) | None => "it is served".to_owned(),
                };
                Finding::ok(check, format!("{workers}, {}", waits(*messages)))
            }
        }
    }
}

/// The messages of all priorities together, and the subscriptions to each.
async fn depth(broker: &Broker, pool: &PoolName) -> Result<Option<QueueDepth>, QueueError> {
    let mut depths = Vec::new();
    for priority in Priority::ALL {
        depths.extend(broker.queue_depth(&topology::task_queue(pool, priority)).await?);
    }
    let messages = depths.iter().map(|depth| depth.messages).sum();
    Ok((!depths.is_empty()).then(|| QueueDepth { messages, consumers: QueueDepth::consumers_of_pool(&depths) }))
}

/// The findings about these pools, which are unknown without a login. A pool that is not known to be in use may be idle.
pub fn judge_all(
    pools: &Option<Vec<PoolDepths>>,
    known: &BTreeSet<PoolName>,
    workers: Option<&[WorkerRow]>,
) -> Vec<Finding> {
    let Some(pools) = pools else { return vec![Finding::skipped("pools", "the broker can't be asked")] };
    let up = |pool: &PoolName| {
        let serves = |worker: &&WorkerRow| {
            worker.state() == WorkerState::Up && worker.pools.iter().any(|served| served == pool.as_str())
        };
        workers.map(|workers| workers.iter().filter(serves).count())
    };
    let matter = pools.iter().filter(|depths| known.contains(&depths.pool) || depths.has_messages());
    matter.map(|depths| depths.judge(up(&depths.pool))).collect()
}

pub fn waits(messages: u32) -> String {
    match messages {
        1 => "1 message waits".to_owned(),
        many => format!("{many} messages wait"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Status, *};

    fn judge(depth: Option<(u32, u32)>, up: Option<usize>) -> Finding {
        let depth = Ok(depth.map(|(messages, consumers)| QueueDepth { messages, consumers }));
        PoolDepths { pool: "team-a".parse().unwrap(), depth, programs: Ok(None) }.judge(up)
    }

    #[test]
    fn a_pool_with_waiting_jobs_and_no_worker_is_an_error_and_an_idle_one_a_warning() {
        assert_eq!(judge(Some((3, 2)), None), Finding::ok("pool team-a", "it is served, 3 messages wait"));
        assert_eq!(judge(Some((3, 2)), Some(1)).found, "1 worker serves it, 3 messages wait");
        assert_eq!(judge(Some((0, 0)), Some(0)).status, Status::Warning);
        let waiting = judge(Some((1, 0)), Some(0));
        assert_eq!(
            (waiting.status, waiting.found.as_str()),
            (Status::Error, "1 message waits, and no worker serves it")
        );
        assert!(waiting.fix.unwrap().contains("gpufleet-worker run --pool team-a"));
        let stuck = judge(Some((1, 0)), Some(2));
        assert_eq!(stuck.status, Status::Error);
        assert!(stuck.fix.unwrap().contains("logs"));
        assert_eq!(judge(None, None).status, Status::Error);
    }

    #[test]
    fn ended_subscriptions_that_hold_messages_are_no_more_workers() {
        let depths = |consumers: [u32; 3]| consumers.map(|consumers| QueueDepth { messages: 0, consumers });
        assert_eq!(QueueDepth::consumers_of_pool(&depths([2, 5, 3])), 2);
        assert_eq!(QueueDepth::consumers_of_pool(&depths([0, 1, 1])), 1, "a worker is starting");
        assert_eq!(QueueDepth::consumers_of_pool(&depths([0; 3])), 0);
    }

    #[test]
    fn waiting_jobs_are_an_error_although_the_ledger_knows_nothing_of_the_pool() {
        let pool = |messages| {
            let depth = Ok(Some(QueueDepth { messages, consumers: 0 }));
            Some(vec![PoolDepths { pool: PoolName::default(), depth, programs: Ok(None) }])
        };
        let found = |pools| judge_all(&pools, &BTreeSet::new(), None);
        assert_eq!(found(pool(2))[0].status, Status::Error);
        assert_eq!(found(pool(0)), [], "nothing is known to use it");
        assert_eq!(judge_all(&pool(0), &BTreeSet::from([PoolName::default()]), None)[0].status, Status::Warning);
    }
}
