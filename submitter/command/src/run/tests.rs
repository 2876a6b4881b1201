//! Tests of the command line and of the report.

use clap::Parser;
use gpufleet::{
    FailedJob,
    schema::{AttemptState, Failure, FailureCode, JobId, RanOn, SessionUse, Task, Timings, Verdict},
    session::LeaseEnd,
};

use super::{outcome::Outcome, *};
use crate::json;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

pub(super) fn parsed(line: &str) -> Result<Options, clap::Error> {
    Line::try_parse_from(std::iter::once("run").chain(line.split_whitespace())).map(|line| line.options)
}

fn task(line: &str) -> Task<'static> {
    parsed(line).unwrap().request().build().unwrap().task
}

#[test]
fn options_become_the_limits_and_requirements_of_the_job() {
    let task = task(
        "--memory 8GiB --time-limit 1h --idle-limit 5m --queue-limit 10m --device-name H100 --min-memory 40GiB \
         --compute-capability 9.0 --name night --label run=7 -- python train.py --token secret",
    );
    assert_eq!(task.limits.memory_bytes_max, Some(8 << 30));
    assert_eq!(task.limits.time_limit_ms, Some(3_600_000));
    assert_eq!(task.limits.queue_limit_ms, Some(600_000));
    assert_eq!(task.limits.attempts_max, Some(1), "nothing runs twice");
    assert_eq!(task.requires.device.as_deref(), Some("H100"));
    assert_eq!(task.requires.memory_bytes_min, Some(40 << 30));
    assert_eq!(task.requires.compute_capability_min, Some([9, 0]));
    assert_eq!((task.name.as_deref(), task.labels["run"].as_str()), (Some("night"), "7"));
    let sent = serde_json::to_value(&task).unwrap();
    assert_eq!(
        sent["program"],
        serde_json::json!({ "session": { "label": "python train.py", "idle_limit_ms": 300_000 } })
    );
    assert!(!sent.to_string().contains("secret"));
}

#[test]
fn memory_and_a_command_are_required() {
    for wrong in [
        "-- python",
        "--memory 1GiB",
        "--memory 1GiB python",
        "--memory 0B -- python",
        "--memory 8 -- python",
        "--memory 1GiB --sessions 0 -- python",
        "--memory 1GiB --priority high -- python",
    ] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
    let options = parsed("--memory 1GiB --sessions 2 -- python -c --memory").unwrap();
    assert_eq!(options.command, ["python", "-c", "--memory"]);
    let ids: Vec<JobId> = jobs(&options).unwrap().iter().map(Job::id).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn a_label_that_is_given_twice_is_refused() {
    let complaint = jobs(&parsed("--memory 1GiB --label a=1 --label a=2 -- python").unwrap()).unwrap_err();
    assert_eq!(complaint.exit, Exit::Usage);
}

fn failed(state: AttemptState, verdict: Verdict, code: FailureCode) -> Outcome {
    Outcome::Failed(Box::new(FailedJob {
        job_id: JobId::new(),
        state,
        attempt: 1,
        failure: Some(Failure::new(verdict, code, "the reason")),
        timings: Timings::default(),
        ran_on: None,
        printf_output: None,
        session: None,
        round_trip: std::time::Duration::ZERO,
        outputs: Vec::new(),
    }))
}

fn end(is_early: bool, end: LeaseEnd, outcome: Outcome) -> SessionEnd {
    SessionEnd {
        job_id: JobId::new(),
        ran_on: RanOn { worker: "w".parse().unwrap(), device: 0, device_name: "d".to_owned(), emulated: true },
        memory_bytes: 1 << 30,
        is_early,
        end,
        outcome,
    }
}

fn closed(reason: Option<&str>) -> LeaseEnd {
    LeaseEnd::Closed {
        reason: reason.map(str::to_owned),
        used: SessionUse { calls: 2, busy_us: 5, ..SessionUse::default() },
    }
}

fn lost() -> LeaseEnd {
    LeaseEnd::Lost { reason: "silent".to_owned() }
}

#[test]
fn a_session_that_the_fleet_ended_first_decides_the_exit_code() {
    let exit = |is_early, how, outcome| outcome::cut(&[end(is_early, how, outcome)]).map(|cut| cut.exit);
    let limit = || failed(AttemptState::Failed, Verdict::Timeout, FailureCode::TimeLimit);
    let cancelled = || failed(AttemptState::Cancelled, Verdict::User, FailureCode::Cancelled);
    let worker = || failed(AttemptState::Dead, Verdict::Infrastructure, FailureCode::ExecutorLost);
    let client = || failed(AttemptState::Failed, Verdict::User, FailureCode::ClientLost);
    let program = || failed(AttemptState::Failed, Verdict::User, FailureCode::ProgramFailed);
    assert_eq!(exit(true, closed(Some("time limit")), limit()), Some(Exit::JobStopped));
    assert_eq!(exit(true, closed(Some("cancelled")), cancelled()), Some(Exit::JobStopped));
    assert_eq!(exit(true, lost(), worker()), Some(Exit::FleetFailed));
    assert_eq!(exit(true, lost(), client()), Some(Exit::FleetFailed));
    assert_eq!(exit(true, lost(), Outcome::Unknown), Some(Exit::FleetFailed));
    // The command saw the end before this process did.
    assert_eq!(exit(false, closed(Some("cancelled")), cancelled()), Some(Exit::JobStopped));
    assert_eq!(exit(false, closed(Some("kernel fault")), program()), None);
    assert_eq!(exit(false, closed(None), program()), None);
    assert_eq!(exit(false, closed(None), Outcome::Succeeded), None);
    assert_eq!(exit(false, lost(), Outcome::Unknown), None, "the command was done");
}

#[test]
fn the_report_has_what_a_script_needs_and_the_help_names_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let ends = [
        end(false, closed(None), failed(AttemptState::Failed, Verdict::User, FailureCode::ProgramFailed)),
        end(true, lost(), Outcome::Unknown),
    ];
    let mut report = Report::default();
    report.add(Some(ProgramEnd::Code(3)), &ends);
    report.write(&path, 10).unwrap();
    json::check(json::RUN_REPORT, &report);
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(written["exit"], 10);
    assert_eq!(written["command"], serde_json::json!({ "exit_code": 3, "signal": null }));
    assert_eq!(written["sessions"][0]["failure_code"], "program_failed");
    assert_eq!(written["sessions"][0]["reason"], "the reason");
    assert_eq!(written["sessions"][1]["ended_early"], true);
    assert_eq!(written["sessions"][1]["outcome"], serde_json::Value::Null);
    assert_eq!(written["used"]["calls"], 2);
}
