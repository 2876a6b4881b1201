//! `gpufleet rerun`: submits a recorded job again with a new id, if the fleet still has its task.
//!
//! The ledger records no program and no inputs. Of the jobs that have ended, only a dead-lettered one has a task: that of its message in the
//! dead-letter queue.

use clap::Args;
use gpufleet::schema::JobState;
use gpufleet_ledger::JobRow;

use super::{complaint::Complaint, dead, exit::Exit, lookup, options::ProducerOptions, source::SourceOptions};

/// Submit a recorded job again as a new job
///
/// The fleet must still have the job's program and inputs. It keeps them for dead-lettered jobs alone, until they are replayed or discarded.
/// The new job has the label replay-of=ID, as with `gpufleet dead replay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Id of the job. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    id: String,
    #[command(flatten)]
    producer: ProducerOptions,
    #[command(flatten)]
    source: SourceOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet rerun 01a20400

To be able to run a job again at any time, keep it as a task file:
  gpufleet submit -f task.toml";

/// What can be done with a job.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// It was dead-lettered, so its message may be in the queue.
    Replay,
    /// It has not ended.
    Refuse(Complaint),
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let detail = lookup::job(&options.id, &options.source).await?;
    match plan(&detail.job) {
        Plan::Refuse(complaint) => Err(complaint),
        Plan::Replay => match dead::replay_job(&options.producer, detail.job.job_id).await {
            Err(complaint) if complaint.exit == Exit::NotFound => Err(gone(&detail.job)),
            replayed => replayed,
        },
    }
}

fn plan(job: &JobRow) -> Plan {
    let id = job.job_id;
    match job.state {
        _ if job.is_session() => Plan::Refuse(
            Complaint::bad_input(format!("job {id} was a session, whose program ran on the machine that requested it"))
                .hint("start the program again there: gpufleet run --memory SIZE -- COMMAND"),
        ),
        _ if job.is_host_program() => Plan::Refuse(
            Complaint::bad_input(format!(
                "job {id} was a host program, whose command and files the fleet does not keep"
            ))
            .hint("run the command again: gpufleet run --on-worker --env NAME -- COMMAND"),
        ),
        JobState::Dead => Plan::Replay,
        state @ (JobState::Queued | JobState::Running) => Plan::Refuse(
            Complaint::bad_input(format!("job {id} is {state}, so it needs no rerun"))
                .hint(format!("to wait for it: gpufleet wait {id}")),
        ),
        JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Expired | JobState::Later(_) => {
            Plan::Refuse(gone(job))
        }
    }
}

/// The complaint about a job whose task no longer exists.
fn gone(job: &JobRow) -> Complaint {
    let (id, state) = (job.job_id, job.state);
    Complaint::bad_input(format!(
        "job {id} ({state}) can't be rerun: the fleet does not keep the program and the inputs of such a job"
    ))
    .hint(format!(
        "submit it again from its files; `gpufleet show {id}` shows its kernel and labels. To repeat a job later, describe it in a task \
         file and submit that: gpufleet submit -f task.toml"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::job;

    #[test]
    fn only_a_dead_lettered_job_still_has_its_task() {
        let session = JobRow {
            state: JobState::Dead,
            program: Some("session".to_owned()),
            ..job("01990f3e-0000-7000-8000-000000000001")
        };
        assert!(
            matches!(plan(&session), Plan::Refuse(complaint) if complaint.hint.as_ref().unwrap().contains("gpufleet run"))
        );
        let host = JobRow { program: Some("host".to_owned()), ..session.clone() };
        assert!(
            matches!(plan(&host), Plan::Refuse(complaint) if complaint.hint.as_ref().unwrap().contains("--on-worker"))
        );
        let planned = |state| plan(&JobRow { state, ..job("01990f3e-0000-7000-8000-000000000001") });
        assert_eq!(planned(JobState::Dead), Plan::Replay);
        for (state, said) in [
            (JobState::Queued, "needs no rerun"),
            (JobState::Running, "needs no rerun"),
            (JobState::Succeeded, "does not keep the program"),
            (JobState::Failed, "does not keep the program"),
            (JobState::Cancelled, "does not keep the program"),
            (JobState::Expired, "does not keep the program"),
        ] {
            let Plan::Refuse(complaint) = planned(state) else { panic!("{state} is replayed") };
            assert!(complaint.message.contains(said), "{}", complaint.message);
            assert_eq!(complaint.exit, Exit::BadInput);
            assert!(complaint.hint.is_some());
        }
    }
}
