//! Where a command reads the ledger: in its database, or through the read API, which needs no database password.

use std::{collections::HashMap, time::Duration};

use clap::Args;
use gpufleet::schema::{JobId, JobState};
use gpufleet_ledger::{
    ActionPage, HistoryFilter, JobMatch, Ledger, Overview, Page, Statistics, StatisticsFilter, WorkerFilter, WorkerRow,
};

use super::{
    complaint::Complaint,
    connection, environment,
    options::{LedgerOptions, Secret},
    output, profile,
};

mod api;

use api::ReadApi;

/// Where to read the ledger. The first of these that is given: the API, the standby, the database, the local fleet.
#[derive(Debug, Args)]
pub struct SourceOptions {
    /// URL of a read API to ask instead of the database, as `gpufleet-ledger serve` offers: https://HOST:9470
    #[arg(long, value_name = "URL", env = environment::API_URL, help_heading = "Connection")]
    pub api_url: Option<String>,
    /// Token for the read API. Set it in the environment to keep it out of process lists
    #[arg(long, value_name = "TOKEN", env = environment::API_TOKEN, hide_env_values = true, help_heading = "Connection")]
    pub api_token: Option<Secret>,
    /// URL of a standby of the ledger's database to read from instead
    #[arg(long, value_name = "URL", env = environment::DATABASE_READ_URL, hide_env_values = true, help_heading = "Connection")]
    pub database_read_url: Option<Secret>,
    #[command(flatten)]
    pub ledger: LedgerOptions,
}

/// The ledger, for reading.
#[derive(Debug)]
pub enum Source {
    Database { ledger: Ledger, is_standby: bool },
    Api(ReadApi),
}

/// Heartbeats arrive each ten seconds. A ledger that is behind by less looks current.
const LAG_NOTED: Duration = Duration::from_secs(10);

impl Source {
    pub async fn open(options: &SourceOptions) -> Result<Self, Complaint> {
        if let Some(url) = &options.api_url {
            let token = options.api_token.clone().map_or_else(|| profile::api_token(url), |token| Ok(Some(token)))?;
            return Ok(Self::Api(ReadApi::new(url, token.as_ref())?));
        }
        match &options.database_read_url {
            Some(url) => {
                let ledger =
                    connection::ledger_at(&url.0, "--database-read-url", environment::DATABASE_READ_URL).await?;
                Ok(Self::Database { ledger, is_standby: true })
            }
            None => Ok(Self::Database { ledger: connection::ledger(&options.ledger).await?, is_standby: false }),
        }
    }

    /// Opens the ledger, reads from it, and closes it.
    pub async fn ask<T>(
        options: &SourceOptions,
        read: impl AsyncFnOnce(&Self) -> Result<T, Complaint>,
    ) -> Result<T, Complaint> {
        let source = Self::open(options).await?;
        let read = read(&source).await;
        source.close().await;
        read
    }

    pub const fn page_jobs_max(&self) -> u32 {
        match self {
            Self::Database { .. } => HistoryFilter::LIMIT_MAX,
            Self::Api(_) => HistoryFilter::API_LIMIT_MAX,
        }
    }

    pub async fn history(&self, filter: &HistoryFilter) -> Result<Page, Complaint> {
        match self {
            Self::Database { ledger, .. } => ledger.history(filter).await.map_err(|e| connection::ledger_complaint(&e)),
            Self::Api(api) => api.history(filter).await,
        }
    }

    /// The job whose id begins or ends with this text.
    pub async fn find_job(&self, id: &str) -> Result<JobMatch, Complaint> {
        match self {
            Self::Database { ledger, .. } => ledger.find_job(id).await.map_err(|e| connection::ledger_complaint(&e)),
            Self::Api(api) => api.find_job(id).await,
        }
    }

    /// The states of those of the jobs that are recorded.
    pub async fn job_states(&self, ids: &[JobId]) -> Result<HashMap<JobId, JobState>, Complaint> {
        match self {
            Self::Database { ledger, .. } => ledger.job_states(ids).await.map_err(|e| connection::ledger_complaint(&e)),
            Self::Api(api) => api.job_states(ids).await,
        }
    }

    pub async fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, Complaint> {
        match self {
            Self::Database { ledger, .. } => ledger.workers(filter).await.map_err(|e| connection::ledger_complaint(&e)),
            Self::Api(api) => api.workers(filter).await,
        }
    }

    pub async fn statistics(&self, filter: &StatisticsFilter) -> Result<Statistics, Complaint> {
        match self {
            Self::Database { ledger, .. } => {
                ledger.statistics(filter).await.map_err(|e| connection::ledger_complaint(&e))
            }
            Self::Api(api) => api.statistics(filter).await,
        }
    }

    pub async fn overview(&self) -> Result<Overview, Complaint> {
        match self {
            Self::Database { ledger, .. } => ledger.overview().await.map_err(|e| connection::ledger_complaint(&e)),
            Self::Api(api) => api.overview().await,
        }
    }

    pub async fn actions(&self, limit: u32) -> Result<ActionPage, Complaint> {
        match self {
            Self::Database { ledger, .. } => {
                ledger.actions(limit, None).await.map_err(|e| connection::ledger_complaint(&e))
            }
            Self::Api(api) => api.actions(limit).await,
        }
    }

    /// Warns if what was read may be old, and closes the connection.
    pub async fn close(&self) {
        if let Some(lag) = self.lag().await.filter(|lag| *lag > LAG_NOTED) {
            output::warn(&format!("the ledger was read from a standby that is {} s behind", lag.as_secs()));
        }
        if let Self::Database { ledger, .. } = self {
            ledger.close().await;
        }
    }

    async fn lag(&self) -> Option<Duration> {
        match self {
            // A primary is not asked.
            Self::Database { is_standby: false, .. } => None,
            // The rows were read; an error here is no reason to withhold them.
            Self::Database { ledger, .. } => ledger.replication().await.ok()?.lag(),
            Self::Api(api) => api.lag(),
        }
    }
}
