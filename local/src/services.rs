//! The broker and the database together. Many fleets can share them: each gets its own vhost and database.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::{
    blobs::BlobEndpoint, broker::RabbitMq, error::LocalError, fleet::Executables, postgres::Postgres, state::StateDir,
};

/// A running broker and a running database.
#[derive(Debug)]
pub struct Services {
    state: Arc<StateDir>,
    /// The nodes of the broker, the first one first. Never empty.
    nodes: Vec<RabbitMq>,
    postgres: Postgres,
    spaces: AtomicU32,
    /// The name of [`TABLES`], once they are complete.
    tables: OnceCell<&'static str>,
}

/// The database whose tables the databases of fleets copy.
const TABLES: &str = "gpufleet-tables";

/// The addresses of a fleet. `Debug` hides the passwords in the URLs, and the key of the blob store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    pub amqp_url: String,
    pub database_url: String,
    /// The blob store, if the workers have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobs: Option<BlobEndpoint>,
}

impl Services {
    /// Starts services that stop when their owner ends.
    pub async fn ephemeral() -> Result<Arc<Self>, LocalError> {
        Self::start(StateDir::ephemeral()?).await
    }

    /// Starts services that stop when their owner ends, and keeps their logs in `logs`.
    pub async fn ephemeral_with_logs(logs: &Path) -> Result<Arc<Self>, LocalError> {
        Self::start(StateDir::ephemeral_with_logs(logs)?).await
    }

    /// Starts the services that do not run in the state directory yet, in parallel.
    pub async fn start(state: Arc<StateDir>) -> Result<Arc<Self>, LocalError> {
        let (broker, postgres) = tokio::join!(RabbitMq::start(&state), Postgres::start(&state));
        Ok(Arc::new(Self {
            nodes: vec![broker?],
            postgres: postgres?,
            state,
            spaces: AtomicU32::new(0),
            tables: OnceCell::new(),
        }))
    }

    /// Starts services that stop when their owner ends, with a cluster of this many nodes as the broker.
    pub async fn ephemeral_cluster(nodes: usize) -> Result<Arc<Self>, LocalError> {
        let state = StateDir::ephemeral()?;
        let (nodes, postgres) = tokio::join!(RabbitMq::start_cluster(&state, nodes), Postgres::start(&state));
        Ok(Arc::new(Self {
            nodes: nodes?,
            postgres: postgres?,
            state,
            spaces: AtomicU32::new(0),
            tables: OnceCell::new(),
        }))
    }

    pub fn state(&self) -> &Arc<StateDir> {
        &self.state
    }

    /// Returns the broker; of a cluster, the first node.
    pub fn broker(&self) -> &RabbitMq {
        &self.nodes[0]
    }

    /// Returns all nodes of the broker, the first one first.
    pub fn nodes(&self) -> &[RabbitMq] {
        &self.nodes
    }

    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// Creates a vhost and an empty database for one fleet. Their unique name starts with `label`.
    pub async fn space(&self, label: &str) -> Result<(String, Endpoints), LocalError> {
        let name = self.space_name(label);
        tokio::try_join!(self.broker().create_vhost(&name), self.postgres.create_database(&name))?;
        let endpoints = self.endpoints(&name);
        Ok((name, endpoints))
    }

    /// Creates a vhost for one fleet, and a database that has the ledger's tables. The tables are copied, which is many times faster than
    /// migrating.
    pub(crate) async fn space_with_tables(
        &self,
        label: &str,
        programs: &Executables,
    ) -> Result<(String, Endpoints), LocalError> {
        let template = self.tables.get_or_try_init(async || {
            self.postgres.create_database(TABLES).await?;
            programs.migrate(&self.state, &self.endpoints(TABLES)).await.map(|()| TABLES)
        });
        let (name, template) = (self.space_name(label), template.await?);
        tokio::try_join!(self.broker().create_vhost(&name), self.postgres.copy_database(template, &name))?;
        let endpoints = self.endpoints(&name);
        Ok((name, endpoints))
    }

    fn space_name(&self, label: &str) -> String {
        format!("{label}-{}", self.spaces.fetch_add(1, Ordering::Relaxed))
    }

    /// Deletes the vhost and the database of a fleet whose processes have ended.
    pub async fn delete_space(&self, name: &str) -> Result<(), LocalError> {
        tokio::try_join!(self.broker().delete_vhost(name), self.postgres.drop_database(name)).map(drop)
    }

    /// Returns the addresses of the vhost and the database with this name.
    pub fn endpoints(&self, name: &str) -> Endpoints {
        let urls: Vec<_> = self.nodes.iter().map(|node| node.vhost_url(name)).collect();
        Endpoints { amqp_url: urls.join(","), database_url: self.postgres.url(name), blobs: None }
    }

    /// Stops both services in parallel, and lets the guard of an ephemeral directory clean up.
    pub async fn stop(&self) -> Result<(), LocalError> {
        let (broker, postgres) = tokio::join!(RabbitMq::stop_all(&self.state, &self.nodes), self.postgres.stop());
        self.state.close().await?;
        broker.and(postgres)
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints")
            .field("amqp_url", &redacted(&self.amqp_url))
            .field("database_url", &redacted(&self.database_url))
            .field("blobs", &self.blobs)
            .finish()
    }
}

/// One or several URLs without their passwords, for display.
pub fn redacted(urls: &str) -> String {
    urls.replace(",amqp", "\namqp").lines().map(redacted_one).collect::<Vec<_>>().join(",")
}

fn redacted_one(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.split_once('@') {
        Some((login, place)) => format!("{scheme}://{}:***@{place}", login.split(':').next().unwrap_or_default()),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_does_not_show() {
        let endpoints = Endpoints {
            amqp_url: "amqp://u:secret@h:1/v".into(),
            database_url: "postgres://u:secret@h/d".into(),
            blobs: None,
        };
        let shown = format!("{endpoints:?}");
        assert!(!shown.contains("secret") && shown.contains("amqp://u:***@h:1/v"), "{shown}");
        assert_eq!(redacted("amqp://u:secret@a/v,amqp://u:secret@b/v"), "amqp://u:***@a/v,amqp://u:***@b/v");
    }

    #[test]
    fn endpoints_without_a_blob_store_keep_their_old_form() {
        let text = r#"{"amqp_url":"amqp://h","database_url":"postgres://h"}"#;
        let endpoints: Endpoints = serde_json::from_str(text).unwrap();
        assert_eq!(endpoints.blobs, None);
        assert_eq!(serde_json::to_string(&endpoints).unwrap(), text);
        let with_store = Endpoints { blobs: Some(BlobEndpoint::Folder("/state/blobs".into())), ..endpoints };
        let text = serde_json::to_string(&with_store).unwrap();
        assert_eq!(serde_json::from_str::<Endpoints>(&text).unwrap(), with_store);
    }
}
