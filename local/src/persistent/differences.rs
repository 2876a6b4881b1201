//! Differences between the running fleet and the options of `up`, which adds missing processes but changes no running
//! one.

use std::{fs, sync::Arc};

use super::{FleetState, Role, UpOptions, status};
use crate::{
    blobs::{BlobEndpoint, BlobKind},
    error::LocalError,
    process::Process,
    state::StateDir,
};

/// One line for each option that [`up`](super::up) did not apply to a running process. Changes nothing.
pub fn differences(options: &UpOptions) -> Result<Vec<String>, LocalError> {
    let status = status(&options.dir)?;
    let Some(state) = StateDir::existing(&options.dir)?.filter(|_| status.state != FleetState::Down) else {
        return Ok(Vec::new());
    };
    let workers: Vec<String> = status
        .processes
        .into_iter()
        .filter(|process| process.alive && Role::of(&process.name) == Role::Worker)
        .map(|process| process.name)
        .collect();
    let mut found = Vec::new();
    if let Some(wanted) = options.workers.filter(|wanted| workers.len() > *wanted as usize) {
        found.push(format!("{} workers are running, not {wanted}", workers.len()));
    }
    if let Some(endpoints) = status.endpoints {
        found.extend(different_store(endpoints.blobs.as_ref(), options.blobs));
    }
    for name in workers {
        // A process that ends in the meantime has no differences.
        let Some(arguments) = arguments(&state, &name) else { continue };
        found.extend(different(&arguments, options).into_iter().map(|difference| format!("{name} {difference}")));
    }
    Ok(found)
}

/// The arguments with which the process was started.
pub(super) fn arguments(state: &Arc<StateDir>, name: &str) -> Option<Vec<String>> {
    let process = Process::attach(state, name)?;
    let line = fs::read(format!("/proc/{}/cmdline", process.pid())).ok()?;
    Some(line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

fn different_store(given: Option<&BlobEndpoint>, wanted: Option<BlobKind>) -> Option<String> {
    let Some(given) = given.map(BlobEndpoint::kind) else { return Some("the workers have no blob store".to_owned()) };
    let wanted = wanted.filter(|wanted| *wanted != given)?;
    Some(format!("the fleet runs with --blobs {}, not with --blobs {}", given.name(), wanted.name()))
}

fn different(arguments: &[String], options: &UpOptions) -> Vec<String> {
    let wanted = [
        ("--pool", options.pools.clone()),
        ("--cuda", options.cuda.iter().map(|cuda| cuda.argument().to_string_lossy().into_owned()).collect()),
    ];
    wanted
        .into_iter()
        .filter(|(_, wanted)| !wanted.is_empty())
        .filter_map(|(option, mut wanted)| {
            let mut given = values(arguments, option);
            // A pool's settings follow its name.
            given.iter_mut().for_each(|value| value.truncate(value.find(':').unwrap_or(value.len())));
            given.sort();
            wanted.sort();
            let told = |values: &[String]| {
                values.iter().map(|value| format!("{option} {value}")).collect::<Vec<_>>().join(" ")
            };
            (given != wanted).then(|| format!("runs with {}, not with {}", told(&given), told(&wanted)))
        })
        .collect()
}

pub(super) fn values(arguments: &[String], option: &str) -> Vec<String> {
    let pairs = arguments.windows(2).filter(|pair| pair[0] == option);
    pairs.map(|pair| pair[1].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Cuda;

    #[test]
    fn a_fleet_with_another_kind_of_store_is_told() {
        let folder = BlobEndpoint::Folder("/blobs".into());
        assert_eq!(different_store(Some(&folder), None), None);
        assert_eq!(different_store(Some(&folder), Some(BlobKind::Folder)), None);
        let told = different_store(Some(&folder), Some(BlobKind::S3)).unwrap();
        assert_eq!(told, "the fleet runs with --blobs folder, not with --blobs s3");
        assert_eq!(different_store(None, Some(BlobKind::S3)).unwrap(), "the workers have no blob store");
    }

    #[test]
    fn an_option_that_is_not_set_makes_no_difference() {
        let line = "gpufleet-worker run --name w1 --cuda emulated --pool a:sessions=4 --pool b";
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let options = UpOptions::in_dir("/nowhere");
        assert_eq!(different(&arguments, &options), [""; 0]);
        let same =
            UpOptions { pools: ["b", "a"].map(str::to_owned).to_vec(), cuda: Some(Cuda::Emulated), ..options.clone() };
        assert_eq!(different(&arguments, &same), [""; 0]);
        let other = UpOptions { pools: vec!["c".to_owned()], cuda: Some(Cuda::System), ..options };
        assert_eq!(
            different(&arguments, &other),
            ["runs with --pool a --pool b, not with --pool c", "runs with --cuda emulated, not with --cuda system"]
        );
    }
}
