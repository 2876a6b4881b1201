//! Finds a job in the ledger by the beginning or the end of its id, or as the last one.

use gpufleet::schema::JobId;
use gpufleet_ledger::{JobDetail, JobMatch, Ledger};

use super::{
    catch_up,
    complaint::Complaint,
    connection,
    exit::Exit,
    recent,
    source::{Source, SourceOptions},
    waiting::Spinner,
};

/// The job that a text names, for a command that asks the ledger nothing else.
pub async fn job(id: &str, options: &SourceOptions) -> Result<Box<JobDetail>, Complaint> {
    let work = Source::ask(options, async |source| in_source(source, id).await);
    Spinner::new("reading the job").around(work).await
}

/// The job that a text names, for a command that asks more.
pub async fn in_source(source: &Source, id: &str) -> Result<Box<JobDetail>, Complaint> {
    let id = &recent::resolve(id)?;
    let found = catch_up::job(id, async || source.find_job(id).await).await?;
    only(id, found)?.ok_or_else(|| missing(id))
}

/// The job whose id begins or ends with this text; `@last` is the last job of this user.
pub async fn in_ledger(ledger: &Ledger, id: &str) -> Result<Box<JobDetail>, Complaint> {
    let id = &recent::resolve(id)?;
    let found = catch_up::job(id, async || find(ledger, id).await).await?;
    only(id, found)?.ok_or_else(|| missing(id))
}

/// The job that a text names, or `None` if the ledger does not have it yet.
pub async fn if_recorded(ledger: &Ledger, id: &str) -> Result<Option<Box<JobDetail>>, Complaint> {
    let id = &recent::resolve(id)?;
    only(id, find(ledger, id).await?)
}

async fn find(ledger: &Ledger, id: &str) -> Result<JobMatch, Complaint> {
    ledger.find_job(id).await.map_err(|error| connection::ledger_complaint(&error))
}

fn only(id: &str, found: JobMatch) -> Result<Option<Box<JobDetail>>, Complaint> {
    match found {
        JobMatch::One(detail) => Ok(Some(detail)),
        JobMatch::None => Ok(None),
        JobMatch::Many(jobs) => Err(ambiguous(id, &jobs)),
    }
}

pub fn missing(id: &str) -> Complaint {
    let looks_right = !id.is_empty() && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let complaint = Complaint::new(Exit::NotFound, format!("the ledger has no job {id:?}"));
    if looks_right {
        complaint.hint("a new job appears within a second; `gpufleet history` lists the latest jobs")
    } else {
        complaint.hint("an id looks like 01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e5f; `gpufleet history` lists the jobs")
    }
}

/// The complaint about a text with which the ids of several jobs begin or end.
pub fn ambiguous(id: &str, jobs: &[JobId]) -> Complaint {
    let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    Complaint::new(Exit::NotFound, format!("the id {id:?} is ambiguous; several jobs begin or end with it, such as"))
        .detail(jobs.join("\n"))
        .hint("give the last characters of the id: jobs that were submitted together begin alike")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_for_an_impossible_id_shows_a_possible_one() {
        assert!(missing("saxpy").hint.unwrap().contains("looks like"));
        assert!(missing("0199").hint.unwrap().contains("within a second"));
    }
}
