//! Host programs: whether workers run those that wait, and whether the workers of a pool offer the same environments.
//!
//! Any worker of a pool may get a program. One without the program's environment or image refuses it.

use std::collections::{BTreeMap, BTreeSet};

use gpufleet::schema::{PoolName, PoolPrograms};
use gpufleet_ledger::{WorkerRow, WorkerState};
use gpufleet_transport::QueueDepth;

use super::{
    finding::Finding,
    pools::{PoolDepths, waits},
};

/// The environments and images of each worker that runs programs of a pool.
type Offers<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The findings about the pools with host programs, and about the environments that the user names.
pub fn judge_all(
    pools: Option<&[PoolDepths]>,
    wanted: &[String],
    workers: Result<&Vec<WorkerRow>, &String>,
) -> Vec<Finding> {
    let up: Option<Vec<&WorkerRow>> =
        workers.ok().map(|workers| workers.iter().filter(|worker| worker.state() == WorkerState::Up).collect());
    let of_pools = pools.into_iter().flatten().filter_map(|depths| {
        let offers = up.as_ref().map(|up| offers(up, &depths.pool)).unwrap_or_default();
        judge(&depths.pool, depths.programs.as_ref().ok().copied().flatten(), &offers)
    });
    let environments = wanted.iter().map(|name| match (&up, workers) {
        (Some(up), _) => judge_environment(name, up),
        (None, Err(why)) => Finding::skipped(check_of(name), why.clone()),
        (None, Ok(_)) => unreachable!("the workers are known"),
    });
    of_pools.chain(environments).collect()
}

fn offers<'a>(up: &[&'a WorkerRow], pool: &PoolName) -> Offers<'a> {
    let running = up.iter().filter(|worker| worker.programs_of(pool.as_str()).is_some());
    running.map(|worker| (worker.worker.as_str(), environments(worker, Some(pool)).collect())).collect()
}

/// The environments and images that a worker offers, for one pool or for all.
fn environments<'a>(worker: &'a WorkerRow, pool: Option<&PoolName>) -> impl Iterator<Item = &'a str> {
    let pools = worker.programs.iter().flat_map(|programs| &programs.pools);
    pools.filter(move |of_pool| pool.is_none_or(|pool| of_pool.pool == *pool)).flat_map(PoolPrograms::places)
}

/// None for a pool without host programs.
fn judge(pool: &PoolName, depth: Option<QueueDepth>, offers: &Offers<'_>) -> Option<Finding> {
    let check = format!("programs of {pool}");
    let QueueDepth { messages, consumers } = depth.unwrap_or(QueueDepth { messages: 0, consumers: 0 });
    if messages > 0 && consumers == 0 {
        let found = format!("{}, and no worker runs host programs of the pool", waits(messages));
        let fix = format!("start one: gpufleet-worker run --pool {pool}:programs=1 --environment NAME=FOLDER");
        return Some(Finding::error(check, found).fix(fix));
    }
    if consumers == 0 && offers.is_empty() {
        return None;
    }
    let all: BTreeSet<&str> = offers.values().flatten().copied().collect();
    let lacking: Vec<String> = offers.iter().filter_map(|(worker, has)| lacks(worker, &all, has)).collect();
    if !lacking.is_empty() {
        let found = format!("the workers offer different environments: {}", lacking.join("; "));
        let fix =
            "a worker without a program's environment refuses it: add --environment there, or use pools of their own";
        return Some(Finding::warning(check, found).fix(fix));
    }
    let offered = if all.is_empty() { String::new() } else { format!(" in {}", names(&all)) };
    Some(Finding::ok(check, format!("workers run them{offered}, {}", waits(messages))))
}

/// Says which environments a worker lacks that others of its pool have.
fn lacks(worker: &str, all: &BTreeSet<&str>, has: &BTreeSet<&str>) -> Option<String> {
    let missing: BTreeSet<&str> = all.difference(has).copied().collect();
    (!missing.is_empty()).then(|| format!("{worker} lacks {}", names(&missing)))
}

fn judge_environment(name: &str, up: &[&WorkerRow]) -> Finding {
    let offering: BTreeSet<&str> = up
        .iter()
        .filter(|worker| environments(worker, None).any(|offered| offered == name))
        .map(|worker| worker.worker.as_str())
        .collect();
    if !offering.is_empty() {
        return Finding::ok(check_of(name), format!("offered by {}", names(&offering)));
    }
    let others: BTreeSet<&str> = up.iter().flat_map(|worker| environments(worker, None)).collect();
    let found = match others.is_empty() {
        true => "no worker runs host programs".to_owned(),
        false => format!("no worker offers it; they offer {}", names(&others)),
    };
    let fix = format!(
        "correct the name, or start a worker: gpufleet-worker run --pool POOL:programs=1 --environment {name}=FOLDER"
    );
    Finding::error(check_of(name), found).fix(fix)
}

fn check_of(environment: &str) -> String {
    format!("environment {environment}")
}

fn names(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::workers::tests::with_program, finding::Status},
        *,
    };

    fn depths(messages: u32, consumers: u32) -> Vec<PoolDepths> {
        let pool = PoolName::default();
        vec![PoolDepths { pool, depth: Ok(None), programs: Ok(Some(QueueDepth { messages, consumers })) }]
    }

    fn offering(name: &str, environments: &[&str]) -> WorkerRow {
        let mut worker = with_program(name);
        let offered = environments.iter().map(|name| (*name).to_owned()).collect();
        worker.programs.as_mut().unwrap().pools[0].environments = offered;
        worker
    }

    fn judged(depths: &[PoolDepths], wanted: &[&str], workers: &[WorkerRow]) -> Vec<Finding> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        judge_all(Some(depths), &wanted, Ok(&workers.to_vec()))
    }

    #[test]
    fn programs_that_no_worker_runs_are_an_error() {
        let found = judged(&depths(2, 0), &[], &[]);
        assert_eq!((found.len(), found[0].status), (1, Status::Error));
        assert_eq!(found[0].found, "2 messages wait, and no worker runs host programs of the pool");
        assert!(found[0].fix.as_ref().unwrap().contains("--pool default:programs=1"), "{found:?}");
        assert_eq!(judged(&depths(0, 0), &[], &[]), [], "the pool runs none");
        let served = judged(&depths(1, 1), &[], &[offering("w1", &["torch"])]);
        assert_eq!(served, [Finding::ok("programs of default", "workers run them in torch, 1 message waits")]);
    }

    #[test]
    fn workers_of_a_pool_that_offer_different_environments_are_a_warning() {
        let workers = [offering("w1", &["science", "torch"]), offering("w2", &["torch"])];
        let found = judged(&depths(0, 2), &[], &workers);
        assert_eq!((found.len(), found[0].status), (1, Status::Warning));
        assert!(found[0].found.ends_with("w2 lacks science"), "{found:?}");
    }

    #[test]
    fn an_environment_that_no_worker_offers_is_an_error() {
        let workers = [offering("w1", &["torch"])];
        let found = judged(&[], &["torch", "jax"], &workers);
        assert_eq!(found[0], Finding::ok("environment torch", "offered by w1"));
        assert_eq!(
            (found[1].status, found[1].found.as_str()),
            (Status::Error, "no worker offers it; they offer torch")
        );
        assert!(found[1].fix.as_ref().unwrap().contains("--environment jax=FOLDER"), "{found:?}");
        let unknown = judge_all(None, &["jax".to_owned()], Err(&"no ledger".to_owned()));
        assert_eq!(unknown[0].status, Status::Skipped);
    }
}
