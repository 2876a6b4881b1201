//! `gpufleet history --watch`: reads the newest jobs again and again.

use std::time::Duration;

use chrono::Utc;
use gpufleet_ledger::Page;

use super::{Options, WEEK_SEARCHED, read, table};
use crate::{
    complaint::Complaint,
    exit::Exit,
    outage::Patient,
    output,
    source::Source,
    waiting::{self, Spinner},
};

/// The pause between two looks. Each reads one page.
const PAUSE: Duration = Duration::from_secs(2);
/// Puts the cursor at the beginning of a terminal and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs until Ctrl-C, which is the usual end and no error.
pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let watching = async {
        let source = Source::open(&options.source).await?;
        let spinner = Spinner::new("reading the history");
        let mut patient = Patient::new(&spinner, None, "the jobs keep running");
        let mut last = None;
        loop {
            let Page { jobs, next, searched_since } = patient.ask(async || read(&source, options).await).await?;
            if last.as_ref() != Some(&jobs) {
                output::replace(&table(&jobs, Utc::now(), output::stdout_width()), CLEAR)?;
                if searched_since.is_some() && next.is_none() {
                    output::note(WEEK_SEARCHED);
                }
                last = Some(jobs);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        ended = watching => ended,
        () = waiting::interrupt() => Ok(Exit::Success),
    }
}
