//! `gpufleet-ledger labels`.

use gpufleet_ledger::labels::{self, LabelError};
use tracing::info;

use super::{
    exit::{Exit, Failure},
    options::Labels,
    services::{database_url, invalid},
};

pub(super) async fn run(command: Labels) -> Result<(), Failure> {
    let url = |text: &str| database_url(text).map_err(invalid);
    match command {
        Labels::Add(options) => {
            labels::add(&url(&options.database.database_url.0)?, &options.key).await.map_err(failure)?;
            info!(key = options.key, "the label key has an index");
        }
        Labels::Remove(options) => {
            labels::remove(&url(&options.database.database_url.0)?, &options.key).await.map_err(failure)?;
            info!(key = options.key, "removed the index of the label key");
        }
        Labels::List(options) => {
            for label in labels::list(&url(&options.database.database_url.0)?).await.map_err(failure)? {
                let remark = if label.is_ready { "" } else { "  (incomplete; repeat `gpufleet-ledger labels add`)" };
                println!("{}{remark}", label.key);
            }
        }
    }
    Ok(())
}

fn failure(error: LabelError) -> Failure {
    const DOING: &str = "change the label keys";
    match error {
        LabelError::Ledger(error) => Failure::from(error).doing(DOING),
        error => Failure::new(Exit::Usage, error).doing(DOING),
    }
}
