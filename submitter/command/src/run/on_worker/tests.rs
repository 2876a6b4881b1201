//! Tests of the command line.

use gpufleet::schema::{Program, Task};

use super::super::tests::parsed;
use crate::exit::Exit;

fn task(line: &str) -> Task<'static> {
    parsed(line).unwrap().host_program(false).unwrap().build().unwrap().task
}

#[test]
fn options_become_the_program_and_its_limits() {
    let task = task(
        "--on-worker --env torch --download out/** --download log.txt --variable SEED=7 --variable EMPTY= --network --time-limit 4h \
         --queue-limit 1h --attempts 2 --keep 2h --min-memory 40GiB --label run=7 -- python train.py --token secret",
    );
    let Program::Host(program) = &task.program else { panic!("{:?}", task.program) };
    assert_eq!(program.command, ["python", "train.py", "--token", "secret"]);
    assert_eq!((program.environment.as_deref(), program.network), (Some("torch"), true));
    assert_eq!(program.download, ["out/**", "log.txt"]);
    assert_eq!((program.variables["SEED"].as_str(), program.variables["EMPTY"].as_str()), ("7", ""));
    assert_eq!((task.limits.time_limit_ms, task.limits.queue_limit_ms), (Some(14_400_000), Some(3_600_000)));
    assert_eq!((task.limits.attempts_max, task.limits.memory_bytes_max), (Some(2), None));
    assert_eq!((task.requires.memory_bytes_min, task.labels["run"].as_str()), (Some(40 << 30), "7"));
    assert_eq!(task.keep_ms, Some(7_200_000));
}

#[test]
fn an_image_takes_the_place_of_an_environment() {
    let task = task("--on-worker --image registry.example.com/torch:2.9 -- python train.py");
    let Program::Host(program) = &task.program else { panic!("{:?}", task.program) };
    assert_eq!((&program.environment, program.image.as_deref()), (&None, Some("registry.example.com/torch:2.9")));
}

#[test]
fn a_detached_program_keeps_its_files_for_a_week_and_runs_once() {
    let detached = task("--on-worker --env torch --detach -- true");
    assert_eq!((detached.keep_ms, detached.limits.attempts_max), (Some(7 * 24 * 3_600_000), Some(1)));
    let attended = parsed("--on-worker --env torch -- true").unwrap();
    assert_eq!(attended.host_program(false).unwrap().build().unwrap().task.keep_ms, None);
    assert_eq!(attended.host_program(true).unwrap().build().unwrap().task.keep_ms, Some(24 * 3_600_000));
}

#[test]
fn options_of_the_other_kind_are_wrong_usage_that_names_the_option() {
    for (line, named) in [
        ("--memory 1GiB --env torch -- python", "--on-worker"),
        ("--memory 1GiB --upload . -- python", "--on-worker"),
        ("--memory 1GiB --download x -- python", "--on-worker"),
        ("--memory 1GiB --variable A=1 -- python", "--on-worker"),
        ("--memory 1GiB --network -- python", "--on-worker"),
        ("--memory 1GiB --detach -- python", "--on-worker"),
        ("--memory 1GiB --dir x -- python", "--on-worker"),
        ("--memory 1GiB --attempts 2 -- python", "--on-worker"),
        ("--memory 1GiB --image x -- python", "--on-worker"),
        ("--on-worker -- python", "--env"),
        ("--on-worker --env torch --image x -- python", "--image"),
        ("--on-worker --env torch --variable A -- python", "NAME=VALUE"),
        ("--on-worker --env torch --detach --dir x -- python", "--dir"),
        ("--on-worker --env torch --attempts 21 -- python", "from 1 to 20"),
        ("--on-worker --env torch", "COMMAND"),
    ] {
        let error = parsed(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(named), "{line}: {error}");
    }
    for given in ["--memory 1GiB", "--sessions 1", "--idle-limit 5m", "--library x.so"] {
        let options = parsed(&format!("--on-worker --env torch {given} -- python")).unwrap();
        let complaint = options.host_program(false).unwrap_err();
        assert_eq!(complaint.exit, Exit::Usage);
        let option = given.split(' ').next().unwrap();
        assert_eq!(complaint.message, format!("{option} can't be used with --on-worker"));
    }
}
