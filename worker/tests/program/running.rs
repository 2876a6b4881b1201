//! A command runs with its environment, and its end is reported as it was.

use std::fs;

use gpufleet_worker::program::{HostEvent, support_of};

use crate::harness::{Work, executable, file, is_root, next, rest};

#[tokio::test(flavor = "multi_thread")]
async fn output_and_errors_come_in_their_order_after_the_start() {
    let work = Work::sh("echo one; echo two >&2; echo three > /dev/stdout; echo four > /dev/stderr");
    let mut process = work.start().await;
    assert_eq!(next(&mut process).await, HostEvent::Started);
    let run = rest(&mut process).await;
    assert_eq!(run.output, "one\ntwo\nthree\nfour\n");
    let bytes = run.output.len() as u64;
    let ended =
        HostEvent::Ended { exit_code: Some(0), signal: None, packed: Ok(None), log_bytes: bytes, log_dropped_bytes: 0 };
    assert_eq!(run.last, ended);
    assert_eq!(fs::read_to_string(work.in_folder("log")).unwrap(), run.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_command_is_its_code_or_its_signal() {
    let run = Work::sh("exit 3").run().await;
    assert_eq!((run.exit_code(), run.signal()), (Some(3), None));
    let run = Work::sh("kill -SEGV $$").run().await;
    assert_eq!((run.exit_code(), run.signal()), (None, Some(11)));
    let run = Work::sh("kill -TERM $$; echo lived").run().await;
    assert_eq!((run.signal(), run.output.as_str()), (Some(15), ""), "signals have their usual effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_exist_is_refused_with_what_to_do() {
    let run = Work::new(&["no-such-command", "x"]).run().await;
    let refusal = run.refusal();
    assert!(refusal.contains("\"no-such-command\"") && refusal.contains("not found in the environment"), "{refusal}");
    let run = Work::new(&["./train.sh"]).run().await;
    assert!(run.refusal().contains("upload it"), "{run:?}");
    let work = Work::new(&["./train.sh"]);
    work.upload(&[file("train.sh", 0o644, "#!/bin/sh\n")]);
    assert!(work.run().await.refusal().contains("chmod +x"));
    assert!(Work::new(&[]).run().await.refusal().contains("empty"));
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_and_globs_that_mean_nothing_are_refused() {
    let mut work = Work::sh("true");
    work.spec.variables.insert("A=B".to_owned(), "x".to_owned());
    assert!(work.run().await.refusal().contains("\"A=B\""));
    let run = Work::sh("true").download(&["../x"]).run().await;
    assert!(run.refusal().contains("\"../x\""), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_its_own_variables_and_starts_in_its_home() {
    let mut work = Work::sh("env | sort; pwd; cd; pwd");
    work.spec.variables.insert("EPOCHS".to_owned(), "3".to_owned());
    let output = work.succeed().await;
    let files = work.in_folder("files").display().to_string();
    let environment = work.environment.display();
    let driver = work.spec.driver_folder.as_ref().unwrap().display();
    let expected = format!(
        "CUDA_VISIBLE_DEVICES=GPU-1\nEPOCHS=3\nGPUFLEET_ON_WORKER=1\nHOME={files}\nLANG=C.UTF-8\nLD_LIBRARY_PATH={driver}\n\
         PATH={environment}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD={files}\nPYTHONUNBUFFERED=1\n\
         TMPDIR=/tmp\nVIRTUAL_ENV={environment}\n{files}\n{files}\n"
    );
    let output: Vec<_> =
        output.lines().filter(|line| !line.starts_with("_=") && !line.starts_with("OLDPWD=")).collect();
    assert_eq!(output, expected.lines().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_of_the_environment_come_first() {
    let work = Work::new(&["python3"]);
    work.script("environment/bin/python3", "#!/bin/sh\necho of the environment\n");
    assert_eq!(work.succeed().await, "of the environment\n");
    assert_eq!(Work::python("print(6 * 7)").succeed().await, "42\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_elsewhere_that_an_environment_is_made_from_can_be_used() {
    let work = Work::new(&["tool"]);
    fs::create_dir_all(work.beside("python/bin")).unwrap();
    let python = work.script("python/bin/python", "#!/bin/sh\necho of the prefix\n");
    let settings = format!("home = {}\n", python.parent().unwrap().display());
    fs::write(work.environment.join("pyvenv.cfg"), settings).unwrap();
    std::os::unix::fs::symlink(&python, work.environment.join("bin/tool")).unwrap();
    assert_eq!(work.succeed().await, "of the prefix\n");
}

#[test]
fn this_machine_supports_programs() {
    let support = support_of(Some(&executable())).unwrap();
    assert_eq!(support.user_namespace, !is_root());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_work_folder_that_does_not_exist_is_a_refusal_to_start() {
    let mut work = Work::sh("true");
    work.spec.folder = "/no/such/folder".into();
    let error = work.try_start().await.unwrap_err().to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
}
