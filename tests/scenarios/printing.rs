//! The `printf` output of kernels is in the reply and in the ledger, separately for each job.

use std::{fs, time::Duration};

use gpufleet::JobError;
use gpufleet_schema::{AttemptState, FailureCode, PrintfOutput, bounds::PRINTF_OUTPUT_BYTES_MAX};
use gpufleet_tests::{
    Ground, WAIT,
    kernels::{Then, doubles, said, says},
};
use serde_json::Value;

const HELLO: &str = r#"
extern "C" __global__ void hello(const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) printf("thread %d of block %d: x=%f %s\n", (int)threadIdx.x, (int)blockIdx.x, x[i], "ok");
}
"#;

fn whole(text: String) -> Option<PrintfOutput> {
    Some(PrintfOutput { text, dropped_bytes: 0, is_tail: false })
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn submit_show_and_logs_print_what_cuda_c_printed() {
    let (ground, _worker) = Ground::with_worker("printf").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("hello.cu"), HELLO).unwrap();
    let hello = [
        "submit",
        "--source",
        "hello.cu",
        "--entry",
        "hello",
        "--fill",
        "x=f32[4]:1.5",
        "--args",
        "x,n:i32=3",
        "--cover",
        "4",
        "--block",
        "2",
    ];
    let lines = [
        "thread 0 of block 0: x=1.500000 ok",
        "thread 0 of block 1: x=1.500000 ok",
        "thread 1 of block 0: x=1.500000 ok",
    ];

    let told = ground.gpufleet(folder, &hello).await.ok();
    let (_, printed) = told.stdout.split_once("printed by the kernels:\n").unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!(sorted_lines(printed), lines.map(|line| format!("  | {line}")));

    let json = ground.gpufleet(folder, &[&hello[..], &["-o", "json"]].concat()).await.json();
    let text = json["printf_output"]["text"].as_str().unwrap();
    assert_eq!(sorted_lines(text), lines);
    assert_eq!(json["printf_output"]["dropped_bytes"], 0);

    let id = json["job_id"].as_str().unwrap();
    let recorded = ground.final_job(id.parse().unwrap()).await;
    assert_eq!(recorded.attempts[0].printf_output, whole(text.to_owned()));
    let logs = ground.gpufleet(folder, &["logs", id]).await.ok();
    assert_eq!((logs.stdout.as_str(), logs.stderr.as_str()), (text, ""));
    let shown = ground.gpufleet(folder, &["show", id]).await.ok();
    assert!(lines.iter().all(|line| shown.stdout.contains(&format!("  | {line}\n"))), "{shown:?}");
    let shown = ground.gpufleet(folder, &["show", id, "-o", "json"]).await.json();
    assert_eq!(shown["attempts"][0]["printf_output"], json["printf_output"]);

    let no_attempt = ground.gpufleet(folder, &["logs", id, "--attempt", "7"]).await;
    assert!(no_attempt.code == 9 && no_attempt.stderr.contains("no attempt 7"), "{no_attempt:?}");
    let no_job = ground.gpufleet(folder, &["logs", "0190a5b8-7c00-7000-8000-000000000009"]).await;
    assert!(no_job.code == 9 && no_job.stdout.is_empty(), "{no_job:?}");
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_job_prints_nothing_and_logs_says_so() {
    let (ground, _worker) = Ground::with_worker("printf-none").await;
    let folder = tempfile::tempdir().unwrap();
    let saxpy = ["submit", "saxpy", "--arg", "a=2.0", "--fill", "x=f32[3]:1", "--fill", "y=f32[3]:1", "-o", "json"];
    let json = ground.gpufleet(folder.path(), &saxpy).await.json();
    assert_eq!(json["printf_output"], Value::Null);
    let id = json["job_id"].as_str().unwrap();
    assert_eq!(ground.final_job(id.parse().unwrap()).await.attempts[0].printf_output, None);
    let logs = ground.gpufleet(folder.path(), &["logs", id]).await.ok();
    assert!(logs.stdout.is_empty() && logs.stderr.contains("printed nothing"), "{logs:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_gets_its_own_printf_output_in_a_list_and_alone() {
    const LINES: u32 = 3;
    const TOO_MANY: u32 = 5_000;
    let (ground, _worker, fleet) = Ground::served("printf-list").await;
    // Their output exceeds one portion of a list's replies.
    let lines = |mark: u32| if mark.is_multiple_of(2) { LINES } else { TOO_MANY };
    let jobs = (0..40).flat_map(|mark| [says(mark, lines(mark), Then::Return), doubles(&[mark as f32])]);
    let handles = fleet.submit_many(jobs).await;
    for (index, handle) in (0..).zip(handles) {
        let mut handle = handle.unwrap();
        let result = handle.wait(WAIT).await.unwrap();
        let mark: u32 = index / 2;
        if index % 2 == 1 {
            assert_eq!(result.printf_output, None);
            assert_eq!(result.output::<f32>("y").unwrap(), [2.0 * mark as f32]);
            continue;
        }
        let (printed, all) = (result.printf_output.unwrap(), said(mark, lines(mark)));
        let kept = all.len().min(PRINTF_OUTPUT_BYTES_MAX);
        assert_eq!((printed.text.as_str(), printed.dropped_bytes as usize), (&all[..kept], all.len() - kept));
        assert_eq!(ground.final_job(handle.id()).await.attempts[0].printf_output, Some(printed));
    }
    ground.check_history(80).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_shows_what_it_printed_before() {
    let (ground, _worker, fleet) = Ground::served("printf-failing").await;
    let slow = says(2, 4, Then::Spin).time_limit(Duration::from_secs(3));
    for (job, code, text) in
        [(says(1, 2, Then::Trap), FailureCode::KernelFault, said(1, 2)), (slow, FailureCode::TimeLimit, said(2, 4))]
    {
        let mut handle = fleet.submit(job).await.unwrap();
        let error = handle.wait(WAIT).await.unwrap_err();
        assert_eq!(error.printf_output().cloned(), whole(text.clone()));
        let JobError::Failed(failed) = error else { panic!("{error}") };
        assert_eq!((failed.state, failed.failure.unwrap().code), (AttemptState::Failed, code));
        let recorded = ground.final_job(handle.id()).await;
        assert_eq!(recorded.attempts.last().unwrap().printf_output, whole(text));
    }
    ground.check_history(2).await;
}
