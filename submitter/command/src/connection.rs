//! Connects to the fleet in the options, or else to the local fleet.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use gpufleet::{BlobError, BlobLocation, ConnectError, Fleet, FleetBuilder, InvalidBlobLocation, Traces};
use gpufleet_blobs::BlobStore;
use gpufleet_ledger::{DatabaseUrl, Ledger, LedgerError};
use gpufleet_local::{BlobEndpoint, Endpoints, LocalError};
use gpufleet_transport::{BrokerUrls, DeclareError, PublishError};

use super::{
    complaint::{Complaint, chain},
    environment,
    exit::Exit,
    options::{BlobOptions, BrokerOptions, LedgerOptions, ProducerOptions},
    profile,
};

/// From RabbitMQ's error: `PRECONDITION_FAILED - user_id property set to 'a' but authenticated user was 'b'`.
const USER_ID_PROPERTY: &str = "user_id property";

/// Closing takes milliseconds unless the broker is unreachable.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// The folder of the local fleet.
pub fn local_dir() -> Result<PathBuf, LocalError> {
    let named = std::env::var_os(environment::LOCAL_DIR).filter(|dir| !dir.is_empty());
    named.map_or_else(gpufleet_local::state::default_dir, |dir| Ok(dir.into()))
}

/// The local fleet, if it is running.
pub fn local_fleet() -> Option<Endpoints> {
    gpufleet_local::running(&local_dir().ok()?)
}

/// The URLs of the broker's nodes, with their password.
pub fn broker_urls(options: &BrokerOptions) -> Result<BrokerUrls, Complaint> {
    amqp_url(options)?.parse().map_err(|error| broker_complaint(ConnectError::Url(error)))
}

fn amqp_url(options: &BrokerOptions) -> Result<String, Complaint> {
    match &options.amqp_url {
        Some(url) => profile::with_password(&url.0),
        None => Ok(local(Exit::Broker, "no broker URL was given", "--amqp-url", environment::AMQP_URL)?.amqp_url),
    }
}

/// Connects to the broker.
pub async fn fleet(options: &BrokerOptions, builder: FleetBuilder) -> Result<Fleet, Complaint> {
    let url = amqp_url(options)?;
    let traces = Traces::from_environment("gpufleet").map_err(|error| Complaint::usage(chain(&error)))?;
    Box::pin(builder.traces(traces).connect(&url)).await.map_err(broker_complaint)
}

/// Connects to the broker to submit jobs.
pub async fn producer(options: &ProducerOptions, builder: FleetBuilder) -> Result<Fleet, Complaint> {
    fleet(&options.broker, builder.user_id(!options.no_user_id)).await
}

/// The blob store for large arrays: the given one, or that of the local fleet if the command uses it. Without one, arrays travel in
/// messages.
pub fn blobs(options: &BlobOptions, broker: &BrokerOptions) -> Result<Option<BlobLocation>, Complaint> {
    choose_blobs(options, broker, local_fleet)
}

/// The location of the local fleet's store, with the key of a bucket.
fn location_of(endpoint: BlobEndpoint) -> Result<BlobLocation, Complaint> {
    match endpoint {
        BlobEndpoint::Folder(folder) => Ok(folder.into()),
        BlobEndpoint::S3(bucket) => {
            Ok(location(bucket.url.into())?.with_credentials(bucket.access_key_id, bucket.secret_access_key))
        }
    }
}

fn location(text: OsString) -> Result<BlobLocation, Complaint> {
    text.try_into().map_err(|problem: InvalidBlobLocation| {
        Complaint::usage(problem.to_string()).hint(format!("correct --blobs or {}", environment::BLOBS))
    })
}

fn choose_blobs(
    options: &BlobOptions,
    broker: &BrokerOptions,
    running: impl FnOnce() -> Option<Endpoints>,
) -> Result<Option<BlobLocation>, Complaint> {
    match (&options.blobs, &broker.amqp_url) {
        (Some(store), _) => location(store.clone()).map(Some),
        (None, Some(_)) => Ok(None),
        (None, None) => running().and_then(|endpoints| endpoints.blobs).map(location_of).transpose(),
    }
}

/// Opens the blob store for a command that requires one.
pub async fn blob_store(options: &BlobOptions) -> Result<BlobStore, Complaint> {
    let location = match &options.blobs {
        Some(store) => location(store.clone())?,
        None => {
            let of_local = local(Exit::Usage, "no blob store was given", "--blobs", environment::BLOBS)?.blobs;
            location_of(of_local.ok_or_else(|| {
                Complaint::usage("no blob store was given, and the local fleet has none").hint(format!(
                    "give --blobs or set {}; or restart the local fleet: gpufleet local down, then gpufleet local up",
                    environment::BLOBS
                ))
            })?)?
        }
    };
    BlobStore::open(location).await.map_err(|error| blob_complaint(&error))
}

/// Gives an order to the workers. A confirmed order is on disk, so the command does not wait for the connection to close cleanly.
pub async fn order<T>(
    options: &BrokerOptions,
    give: impl AsyncFnOnce(&Fleet) -> Result<T, PublishError>,
) -> Result<T, Complaint> {
    let fleet = fleet(options, Fleet::builder()).await?;
    let given = give(&fleet).await;
    let _closed_in_time = tokio::time::timeout(CLOSE_DEADLINE, fleet.close()).await;
    given.map_err(|error| Complaint::new(Exit::Broker, chain(&error)))
}

/// Connects to the ledger's database.
pub async fn ledger(options: &LedgerOptions) -> Result<Ledger, Complaint> {
    let url = match &options.database_url {
        Some(url) => url.0.clone(),
        None => {
            local(Exit::Ledger, "no database URL was given", "--database-url", environment::DATABASE_URL)?.database_url
        }
    };
    ledger_at(&url, "--database-url", environment::DATABASE_URL).await
}

/// Connects to the database at a URL, which came from this option or variable.
pub async fn ledger_at(url: &str, option: &str, variable: &str) -> Result<Ledger, Complaint> {
    let url: DatabaseUrl =
        profile::with_password(url)?.parse().map_err(|problem: gpufleet_ledger::InvalidDatabaseUrl| {
            Complaint::usage(problem.to_string()).hint(format!("correct {option} or {variable}"))
        })?;
    Ledger::connect(url).await.map_err(|error| ledger_complaint(&error))
}

/// The ledger that knows the jobs of a blob store: the given one, or that of the local fleet if its store is used. The ledger of the local
/// fleet knows nothing of other stores.
pub async fn ledger_of_store(store: &BlobOptions, options: &LedgerOptions) -> Result<Option<Ledger>, Complaint> {
    match (&options.database_url, &store.blobs) {
        (None, Some(_)) => Ok(None),
        _ => ledger(options).await.map(Some),
    }
}

fn local(exit: Exit, problem: &str, option: &str, variable: &str) -> Result<Endpoints, Complaint> {
    let none = |why: String| {
        Complaint::new(exit, format!("{problem}, and {why}"))
            .hint(format!("give {option} or set {variable}; or start a local fleet: gpufleet local up"))
    };
    let dir = local_dir().map_err(|error| none(format!("the local fleet was not found: {error}")))?;
    gpufleet_local::running(&dir).ok_or_else(|| none(format!("no local fleet is running in {}", dir.display())))
}

fn broker_complaint(error: ConnectError) -> Complaint {
    let told = |exit| Complaint::new(exit, chain(&error));
    match &error {
        ConnectError::Url(_) => told(Exit::Usage).hint(format!("correct --amqp-url or {}", environment::AMQP_URL)),
        ConnectError::Client(_)
        | ConnectError::Ledger(_)
        | ConnectError::NameInUse { .. }
        | ConnectError::ForeignName { .. } => told(Exit::Internal),
        ConnectError::BlobLocation(_) => told(Exit::Usage).hint(format!("correct --blobs or {}", environment::BLOBS)),
        ConnectError::Blobs(problem) => blob_complaint(problem),
        ConnectError::Broker(_) | ConnectError::Declare(_) | ConnectError::Queue(_) => told(Exit::Broker),
    }
}

/// The complaint about a blob that could not be read or stored.
pub fn blob_complaint(error: &BlobError) -> Complaint {
    Complaint::bad_input(chain(error)).hint(blob_hint(error))
}

/// The advice for an error of the blob store.
pub fn blob_hint(error: &BlobError) -> String {
    match error {
        BlobError::Unusable { .. } => format!(
            "give an existing folder or bucket that the workers share as --blobs or {}; `gpufleet local up` creates its own",
            environment::BLOBS
        ),
        BlobError::Io { store, .. } if store.is_folder() => {
            "check that you may write to the folder and that the disk has room: ls -ld, df".to_owned()
        }
        BlobError::Io { .. } => {
            "check that the server runs, and that your key may read and write the bucket".to_owned()
        }
        BlobError::Timeout { store, .. } if store.is_folder() => {
            "check that the file server of the folder responds: df".to_owned()
        }
        BlobError::Timeout { .. } => "check that the server responds, and its load".to_owned(),
        BlobError::Output { .. } => "check that you may write the file and that its disk has room".to_owned(),
        BlobError::Missing { .. }
        | BlobError::Length { .. }
        | BlobError::TooLarge { .. }
        | BlobError::Damaged { .. } => "store the array with `gpufleet blobs put`".to_owned(),
    }
}

/// The complaint about a reply queue that could not be declared.
pub fn declare_complaint(problem: &DeclareError) -> Complaint {
    Complaint::new(Exit::Broker, chain(problem))
}

/// The complaint about a message that the broker refused.
pub fn publish_complaint(problem: &str) -> Complaint {
    let complaint = Complaint::new(Exit::Broker, problem);
    if !problem.contains(USER_ID_PROPERTY) {
        return complaint;
    }
    complaint.hint(format!(
        "the broker's name for this user differs from the one in the URL; send jobs without the name: --no-user-id, or {}=true",
        environment::NO_USER_ID
    ))
}

/// The user and host that give an order, for people: `anna@laptop`.
pub fn caller() -> Option<String> {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|user| !user.is_empty());
    match (user, host_name()) {
        (Some(user), Some(host)) => Some(format!("{user}@{host}")),
        (user, host) => user.or(host),
    }
}

/// The name of this machine, as workers on it report it.
pub fn host_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|host| host.trim().to_owned())
}

/// The complaint about a failed query of the ledger.
pub fn ledger_complaint(error: &LedgerError) -> Complaint {
    let exit = if error.is_about_tables() { Exit::LedgerTables } else { Exit::Ledger };
    Complaint { may_pass: error.may_pass(), ..Complaint::new(exit, chain(error)) }
}

#[cfg(test)]
mod tests {
    use gpufleet_local::blobs::Bucket;

    use super::*;
    use crate::options::Secret;

    #[test]
    fn the_local_fleets_blob_store_is_used_only_with_the_local_fleet() {
        let broker = |url: Option<&str>| BrokerOptions { amqp_url: url.map(|url| Secret(url.to_owned())) };
        let store = |folder: Option<&str>| BlobOptions { blobs: folder.map(OsString::from) };
        let running = |folder: Option<&str>| {
            let blobs = folder.map(|folder| BlobEndpoint::Folder(folder.into()));
            move || Some(Endpoints { amqp_url: String::new(), database_url: String::new(), blobs: blobs.clone() })
        };
        let chosen = |store, broker, running: &dyn Fn() -> Option<Endpoints>| {
            choose_blobs(&store, &broker, running).unwrap().map(|location| location.to_string())
        };
        let (local, named) = (Some("/local"), Some("/named"));
        assert_eq!(chosen(store(None), broker(None), &running(local)).as_deref(), local);
        assert_eq!(chosen(store(None), broker(None), &running(None)), None);
        assert_eq!(chosen(store(None), broker(None), &|| None), None);
        assert_eq!(chosen(store(None), broker(Some("amqp://h")), &running(local)), None);
        for url in [None, Some("amqp://h")] {
            assert_eq!(chosen(store(named), broker(url), &running(local)).as_deref(), named);
        }
    }

    #[test]
    fn the_local_fleets_bucket_is_used_with_its_key() {
        let url = "s3://gpufleet?endpoint=http://127.0.0.1:1".to_owned();
        let bucket =
            Bucket { url: url.clone(), access_key_id: "id".to_owned(), secret_access_key: "canary".to_owned() };
        let location = location_of(BlobEndpoint::S3(bucket)).unwrap();
        assert_eq!(location, url.parse::<BlobLocation>().unwrap().with_credentials("id", "canary"));
        assert_eq!(location.to_string(), url);
    }

    #[tokio::test]
    async fn a_missing_folder_is_reported_before_the_client_connects() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Fleet::builder().blobs(folder.path().join("none"));
        let amqp_url = Some(Secret("amqp://127.0.0.1:1/".to_owned()));
        let complaint = fleet(&BrokerOptions { amqp_url }, builder).await.unwrap_err();
        assert_eq!(complaint.exit, Exit::BadInput);
        assert!(complaint.message.contains("none as a blob store: No such file"), "{}", complaint.message);
        assert!(complaint.hint.unwrap().contains("as --blobs or GPUFLEET_BLOBS"));
    }

    #[test]
    fn the_hint_for_a_rejected_user_id_names_the_option() {
        let refused = "failed to publish: the broker refused the message: PRECONDITION_FAILED - user_id property set to 'a' but authenticated user was 'b'";
        assert!(publish_complaint(refused).hint.unwrap().contains("--no-user-id"));
        assert_eq!(publish_complaint("failed to publish: the broker refused the message: NOT_FOUND").hint, None);
    }
}
