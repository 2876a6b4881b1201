//! The pools: whether workers serve them, and what waits in them.

use std::collections::BTreeSet;

use gpufleet::schema::{PoolName, Priority, topology};
use gpufleet_ledger::{WorkerRow, WorkerState};
use gpufleet_transport::{Broker, QueueDepth, QueueError};

use super::{
    super::{complaint::chain, connection},
    finding::Finding,
};

/// The queues of a pool, according to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDepths {
    pool: PoolName,
    /// None if no worker has ever declared its queues.
    depth: Result<Option<QueueDepth>, String>,
}

impl PoolDepths {
    pub async fn of_all(broker: &Broker, pools: BTreeSet<PoolName>) -> Vec<Self> {
        let mut all = Vec::new();
        for pool in pools {
            let depth = depth(broker, &pool).await.map_err(|error| connection::sentence(&chain(&error)));
            all.push(Self { pool, depth });
        }
        all
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
            Ok(Some(QueueDepth { messages, consumers })) => {
                let workers = if *consumers == 1 {
                    "1 worker serves it".to_owned()
                } else {
                    format!("{consumers} workers serve it")
                };
                Finding::ok(check, format!("{workers}, {}", waits(*messages)))
            }
        }
    }
}

/// The messages of all priorities together, and the consumers.
async fn depth(broker: &Broker, pool: &PoolName) -> Result<Option<QueueDepth>, QueueError> {
    let mut sum: Option<QueueDepth> = None;
    for priority in Priority::ALL {
        if let Some(depth) = broker.queue_depth(&topology::task_queue(pool, priority)).await? {
            let before = sum.unwrap_or(QueueDepth { messages: 0, consumers: 0 });
            // A worker consumes from each of the pool's queues.
            let consumers = before.consumers.max(depth.consumers);
            sum = Some(QueueDepth { messages: before.messages + depth.messages, consumers });
        }
    }
    Ok(sum)
}

/// The findings about these pools, which are unknown without a login.
pub fn judge_all(pools: &Option<Vec<PoolDepths>>, workers: Option<&[WorkerRow]>) -> Vec<Finding> {
    let Some(pools) = pools else { return vec![Finding::skipped("pools", "the broker can't be asked")] };
    let up = |pool: &PoolName| {
        let serves = |worker: &&WorkerRow| {
            worker.state() == WorkerState::Up && worker.pools.iter().any(|served| served == pool.as_str())
        };
        workers.map(|workers| workers.iter().filter(serves).count())
    };
    pools.iter().map(|depths| depths.judge(up(&depths.pool))).collect()
}

fn waits(messages: u32) -> String {
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
        PoolDepths { pool: "team-a".parse().unwrap(), depth }.judge(up)
    }

    #[test]
    fn a_pool_with_waiting_jobs_and_no_worker_is_an_error_and_an_idle_one_a_warning() {
        assert_eq!(judge(Some((3, 2)), None), Finding::ok("pool team-a", "2 workers serve it, 3 messages wait"));
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
}
