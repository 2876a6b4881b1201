//! A job belongs to one user: events of other users change nothing, in one batch or in several.

use gpufleet_schema::{AttemptFinished, AttemptState, Event, JobId, JobInfo, JobState, Submitted};

use crate::{
    database::Database,
    histories::{finished, id, info, started},
    recorder::{AT, record},
};

fn of(user: Option<&str>, job_id: JobId) -> JobInfo {
    let name = user.map(str::to_owned);
    JobInfo { user_id: name.clone(), name, ..info(job_id, AT) }
}

fn submitted(user: Option<&str>, job_id: JobId) -> Event {
    Event::Submitted(Submitted { job: of(user, job_id), at_ms: AT })
}

fn ended(user: Option<&str>, job_id: JobId, attempt: u32, state: AttemptState) -> Event {
    let Event::AttemptFinished(end) = finished(job_id, attempt, state, AT + 5) else { panic!("it is an end") };
    Event::AttemptFinished(AttemptFinished { job: Some(Box::new(of(user, job_id))), ..end })
}

/// Returns the end of an unreadable message of this user.
fn refused(user: Option<&str>, job_id: JobId) -> Event {
    let Event::AttemptFinished(end) = finished(job_id, 7, AttemptState::Dead, AT + 5) else { panic!("it is an end") };
    Event::AttemptFinished(AttemptFinished { job: None, user_id: user.map(str::to_owned), ..end })
}

#[tokio::test]
async fn events_of_other_users_change_nothing() {
    let (_, mut store, ledger) = Database::opened().await;
    let anna = Some("anna");
    for (number, cuts) in [(1, &[][..]), (2, &[1, 2, 3, 4, 5])] {
        let job = id(90, number, Some(AT));
        let events = [
            submitted(anna, job),
            submitted(Some("bert"), job),
            ended(anna, job, 1, AttemptState::Succeeded),
            ended(Some("bert"), job, 2, AttemptState::Failed),
            ended(None, job, 3, AttemptState::Failed),
            refused(Some("bert"), job),
            refused(None, job),
        ];
        record(&mut store, &events, cuts).await;
        let detail = ledger.job(job).await.unwrap().unwrap();
        assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Succeeded, 1), "{cuts:?}");
        assert_eq!((detail.job.user_id.as_deref(), detail.job.name.as_deref()), (anna, anna));
    }
}

#[tokio::test]
async fn a_workers_event_takes_a_job_over_from_the_submission_of_another_client() {
    let (_, mut store, ledger) = Database::opened().await;
    for (number, cuts) in [(3, &[][..]), (4, &[1, 2])] {
        let job = id(90, number, Some(AT));
        let events = [
            submitted(Some("bert"), job),
            ended(Some("anna"), job, 1, AttemptState::Succeeded),
            ended(Some("bert"), job, 2, AttemptState::Failed),
        ];
        record(&mut store, &events, cuts).await;
        let detail = ledger.job(job).await.unwrap().unwrap();
        assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Succeeded, 1), "{cuts:?}");
        assert_eq!((detail.job.user_id.as_deref(), detail.job.name.as_deref()), (Some("anna"), Some("anna")));
    }
}

#[tokio::test]
async fn an_event_of_another_user_does_not_displace_the_outcome_of_its_batch() {
    let (_, mut store, ledger) = Database::opened().await;
    let (anna, job) = (Some("anna"), id(90, 5, Some(AT)));
    record(&mut store, &[started(&of(anna, job), 1, AT)], &[]).await;
    let forged = [ended(Some("bert"), job, 1, AttemptState::Failed), ended(None, job, 1, AttemptState::Failed)];
    let events = forged.into_iter().chain([ended(anna, job, 1, AttemptState::Succeeded)]).collect::<Vec<_>>();
    record(&mut store, &events, &[]).await;
    let detail = ledger.job(job).await.unwrap().unwrap();
    assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Succeeded, 1));
    assert_eq!(detail.job.user_id.as_deref(), anna);
}
