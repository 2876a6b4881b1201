//! Host programs: their jobs say what ran and in which environment.

use gpufleet_ledger::HistoryFilter;
use gpufleet_schema::{
    AttemptState, Event, HostProgramInfo, JobId, JobInfo, Submitted,
    bounds::{RECORDED_COMMAND_BYTES_MAX, TEXT_BYTES_MAX},
};

use crate::{
    database::Database,
    histories::{id, info, ran},
    recorder::{AT, record},
};

fn program(number: u32, environment: &str) -> JobInfo {
    let described = HostProgramInfo {
        command: vec!["python".to_owned(), "train.py".to_owned()],
        environment: Some(environment.to_owned()),
        variables: vec!["SEED".to_owned()],
        ..HostProgramInfo::default()
    };
    let job_id = id(95, number, Some(AT));
    JobInfo { program: "host".to_owned(), host_program: Some(Box::new(described)), ..info(job_id, AT) }
}

fn submitted(job: &JobInfo) -> Event {
    Event::Submitted(Submitted { job: job.clone(), at_ms: AT })
}

#[tokio::test]
async fn a_host_program_is_described_within_bounds_whatever_was_reported() {
    let (_, mut store, ledger) = Database::opened().await;
    let recorded = async |job_id: JobId| ledger.job(job_id).await.unwrap().unwrap().job.host_program;
    let job = program(1, "torch");
    record(&mut store, &[submitted(&job)], &[]).await;
    assert_eq!(recorded(job.job_id).await.as_ref(), job.host_program.as_deref());
    // The end of its attempt, by an old worker, does not describe it.
    let old = JobInfo { host_program: None, ..job.clone() };
    record(&mut store, &[ran(&old, 1, AttemptState::Failed, AT + 1, AT + 2)], &[]).await;
    assert_eq!(recorded(job.job_id).await.as_ref(), job.host_program.as_deref());

    let mut forged = program(2, &"e\0".repeat(TEXT_BYTES_MAX));
    forged.host_program.as_mut().unwrap().command = vec!["\0x".repeat(RECORDED_COMMAND_BYTES_MAX)];
    record(&mut store, &[submitted(&forged)], &[]).await;
    let kept = recorded(forged.job_id).await.unwrap();
    let bytes: usize = kept.command.iter().map(String::len).sum();
    assert!(
        kept.is_cut && bytes <= RECORDED_COMMAND_BYTES_MAX && kept.place().unwrap().len() <= TEXT_BYTES_MAX,
        "{kept:?}"
    );
    let job = info(id(95, 3, Some(AT)), AT);
    record(&mut store, &[submitted(&job)], &[]).await;
    assert_eq!(recorded(job.job_id).await, None, "it is no host program");
}

#[tokio::test]
async fn the_programs_of_an_environment_are_found_by_an_index() {
    let (database, mut store, ledger) = Database::opened().await;
    let jobs = [program(1, "torch"), program(2, "science"), program(3, "torch"), info(id(95, 4, Some(AT)), AT)];
    record(&mut store, &jobs.iter().map(submitted).collect::<Vec<_>>(), &[]).await;
    let listed = async |environment: &str| {
        let filter = HistoryFilter { environment: Some(environment.to_owned()), ..HistoryFilter::default() };
        let page = ledger.history(&filter).await.unwrap();
        page.jobs.into_iter().map(|job| job.job_id).collect::<Vec<_>>()
    };
    assert_eq!(listed("torch").await, [jobs[2].job_id, jobs[0].job_id]);
    assert_eq!(listed("science").await, [jobs[1].job_id]);
    assert_eq!(listed("jax").await, [] as [JobId; 0]);
    let plan = database
        .execute(
            "set enable_seqscan = off; explain select job_id from jobs where host_program is not null \
             and coalesce(host_program ->> 'environment', host_program ->> 'image') = 'torch' \
             order by id_at desc, job_id desc limit 10",
        )
        .await;
    let condition = "Index Cond: (COALESCE((host_program ->> 'environment'::text), (host_program ->> 'image'::text)) = 'torch'::text)";
    assert!(plan.contains(condition), "{plan}");
}
