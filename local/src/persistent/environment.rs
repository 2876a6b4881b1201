//! The environment variables with which other programs use a fleet that keeps running.

use std::{ffi::OsString, path::Path, sync::Arc};

use super::{Role, differences, running};
use crate::{
    blobs::BlobEndpoint,
    console,
    error::LocalError,
    fleet::{AMQP_URL, DATABASE_URL},
    services::Endpoints,
    state::StateDir,
};

/// The names and values of the variables, with passwords; `None` if the broker and the database don't run. Changes
/// nothing.
pub fn environment(dir: &Path) -> Result<Option<Vec<(String, String)>>, LocalError> {
    let (Some(endpoints), Some(state)) = (running(dir), StateDir::existing(dir)?) else { return Ok(None) };
    let mut variables = of_endpoints(&endpoints);
    variables.extend(console::api(&state)?);
    variables.extend(of_workers(&state)?);
    Ok(Some(variables))
}

fn of_endpoints(endpoints: &Endpoints) -> Vec<(String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let urls = [(AMQP_URL, &endpoints.amqp_url), (DATABASE_URL, &endpoints.database_url)];
    let blobs = endpoints.blobs.iter().flat_map(BlobEndpoint::environment);
    urls.into_iter()
        .map(|(name, url)| (name.to_owned(), url.clone()))
        .chain(blobs.map(|(name, value)| (text(name), text(value))))
        .collect()
}

/// The CUDA driver of the first worker that runs. The fleet's workers may differ if they were started by different commands.
fn of_workers(state: &Arc<StateDir>) -> Result<Option<(String, String)>, LocalError> {
    let names = state.recorded()?.into_iter().filter(|name| Role::of(name) == Role::Worker);
    let arguments = names.filter_map(|name| differences::arguments(state, &name)).next();
    Ok(arguments.and_then(|arguments| driver(&arguments)))
}

fn driver(arguments: &[String]) -> Option<(String, String)> {
    Some(("GPUFLEET_CUDA".to_owned(), differences::values(arguments, "--cuda").into_iter().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::Bucket;

    fn shown(variables: &[(String, String)]) -> Vec<String> {
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn programs_get_the_urls_and_the_blob_store_with_its_key() {
        let bucket =
            Bucket { url: "s3://b".to_owned(), access_key_id: "id".to_owned(), secret_access_key: "k".to_owned() };
        let endpoints = Endpoints {
            amqp_url: "amqp://u:p@h".to_owned(),
            database_url: "postgres://h/d".to_owned(),
            blobs: Some(BlobEndpoint::S3(bucket)),
        };
        assert_eq!(
            shown(&of_endpoints(&endpoints)),
            [
                "GPUFLEET_AMQP_URL=amqp://u:p@h",
                "GPUFLEET_DATABASE_URL=postgres://h/d",
                "GPUFLEET_BLOBS=s3://b",
                "AWS_ACCESS_KEY_ID=id",
                "AWS_SECRET_ACCESS_KEY=k"
            ]
        );
    }

    #[test]
    fn another_worker_gets_the_driver() {
        let line = "gpufleet-worker run --name w1 --cuda emulated --pool a";
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(driver(&arguments), Some(("GPUFLEET_CUDA".to_owned(), "emulated".to_owned())));
    }

    #[test]
    fn a_folder_without_a_fleet_gives_no_variables() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(environment(&scratch.path().join("none")).unwrap(), None);
    }
}
