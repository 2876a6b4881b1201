use std::collections::BTreeMap;

use chrono::TimeZone as _;
use gpufleet_ledger::FailureRow;

use super::*;

pub fn job(id: &str) -> JobRow {
    let at = |second| Utc.with_ymd_and_hms(2026, 11, 20, 8, 30, second).unwrap();
    JobRow {
        job_id: id.parse().unwrap(),
        state: JobState::Succeeded,
        name: Some("first, try".to_owned()),
        labels: BTreeMap::from([("team".to_owned(), "vision".to_owned())]),
        pool: Some("default".to_owned()),
        priority: Some("normal".to_owned()),
        program: Some("catalog".to_owned()),
        kernel: Some("saxpy".to_owned()),
        client: Some("cli-1".to_owned()),
        user_id: Some("anna".to_owned()),
        created_at: at(0),
        submitted_at: Some(at(0)),
        started_at: Some(at(1)),
        finished_at: Some(at(2)),
        attempts: 1,
        attempt: Some(1),
        worker: Some("w1".to_owned()),
        is_unheard: false,
        device: Some(0),
        device_name: Some("CPU".to_owned()),
        emulated: Some(true),
        failure: None,
        input_bytes: Some(8_000_000),
        lease_bytes: None,
        host_program: None,
        output_bytes: Some(4_000_000),
        queue_us: Some(1_500),
        kernel_us: Some(45_678),
        total_us: Some(1_234_567),
    }
}

fn jobs() -> Vec<JobRow> {
    let mut failed = job("01990f3e-0000-7000-8000-000000000002");
    failed.state = JobState::Failed;
    failed.name = None;
    (failed.kernel_us, failed.total_us, failed.device_name, failed.emulated) = (None, None, None, None);
    failed.failure = Some(FailureRow {
        verdict: "user".to_owned(),
        code: "compile_error".to_owned(),
        message: "identifier \"x\" is undefined".to_owned(),
        detail: None,
        line: Some(3),
        source: None,
    });
    vec![failed, job("01990f3e-0000-7000-8000-000000000001")]
}

#[test]
fn the_table_shows_the_outcome_of_each_job() {
    let now = Utc.with_ymd_and_hms(2026, 11, 20, 10, 31, 0).unwrap();
    insta::assert_snapshot!(table(&jobs(), now, None));
    insta::assert_snapshot!("the_table_on_a_narrow_terminal", table(&jobs(), now, Some(80)));
}

#[test]
fn an_empty_history_is_a_header_an_empty_list_or_a_csv_header() {
    assert_eq!(table(&[], Utc::now(), None).lines().count(), 1);
    assert_eq!(serde_json::to_string_pretty(&Vec::<JobRow>::new()).unwrap(), "[]");
    assert_eq!(csv(&[]).lines().count(), 1);
}

#[test]
fn csv_has_a_record_for_each_job() {
    insta::assert_snapshot!(csv(&jobs()).replace("\r\n", "\n"));
}

#[test]
fn json_is_a_list_of_objects() {
    let text = serde_json::to_string_pretty(&jobs()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value[0]["state"], "failed");
    assert_eq!(value[0]["failure"]["code"], "compile_error");
    assert_eq!(value[1]["kernel_us"], 45_678);
    insta::assert_snapshot!("json_of_the_history", text);
    let unlabelled: Vec<JobRow> = jobs().into_iter().map(|job| JobRow { labels: BTreeMap::new(), ..job }).collect();
    json::check(json::HISTORY, &unlabelled);
}

#[test]
fn a_running_job_of_a_silent_worker_is_unknown() {
    let unheard = JobRow { state: JobState::Running, is_unheard: true, ..job("01990f3e-0000-7000-8000-000000000001") };
    let text = table(&[unheard], Utc::now(), None);
    assert!(text.contains(UNHEARD) && !text.contains("running"), "{text}");
}
