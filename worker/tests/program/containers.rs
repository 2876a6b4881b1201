//! What a program in a container sees and can do.

use std::fs;

use gpufleet_worker::program::{HostEvent, Place, ProgramLimits};

use crate::{
    container::InContainer,
    harness::{NOBODY, Work, executable, file, is_root, output_has, processes_with, unique},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_its_image_with_its_files() {
    let script = "echo one; echo two >&2; cat in; pwd; echo $HOME $SEED $LD_LIBRARY_PATH; echo kept > out; exit 3";
    let Some(mut container) = InContainer::sh(script) else { return };
    container.work.spec.variables.insert("SEED".to_owned(), "7 8\n9".to_owned());
    container.work = container.work.download(&["out"]);
    container.work.upload(&[file("in", 0o644, "input\n")]);
    let run = container.work.run().await;
    assert_eq!(run.output, "one\ntwo\ninput\n/job\n/job 7 8 9 /gpufleet/driver\n", "{run:?}");
    assert_eq!((run.exit_code(), run.signal()), (Some(3), None));
    assert_eq!(container.work.packed()["out"].1, "kept\n");
    assert_eq!(fs::read_to_string(container.work.in_folder("log")).unwrap(), run.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_is_read_only_and_the_program_has_no_rights() {
    let script = "for folder in / /bin /etc /usr /proc/sys /sys; do touch $folder/x 2>/dev/null && echo wrote $folder; done\n\
                  for folder in . /tmp /var/tmp /dev/shm /run; do touch $folder/x || echo not $folder; done\n\
                  mount -t tmpfs x /tmp 2>/dev/null && echo mounted\n\
                  id -u; id -g; grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status; ls /dev; ls /sys/class/net /proc/net/dev_snmp6";
    let Some(container) = InContainer::sh(script) else { return };
    let output = container.work.succeed().await;
    assert!(output.starts_with(&format!("{NOBODY}\n{NOBODY}\n")), "{output}");
    for line in output.lines().filter(|line| line.starts_with("Cap")) {
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    assert!(output.contains("NoNewPrivs:\t1\n") && output.contains("Seccomp:\t2\n"), "{output}");
    let devices = ["nvidia", "vda", "kmsg", "mem\n"];
    assert!(devices.iter().all(|device| !output.contains(device)), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_no_network_unless_it_is_allowed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!("nc 127.0.0.1 {} </dev/null && echo connected; true", listener.local_addr().unwrap().port());
    // `nc` ends with its connection.
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let Some(container) = InContainer::sh(&script) else { return };
    let output = container.work.succeed().await;
    assert!(!output.contains("connected"), "{output}");
    let Some(mut container) = InContainer::sh(&script) else { return };
    container.work.spec.network = true;
    assert_eq!(container.work.succeed().await, "connected\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_see_neither_each_others_files_nor_processes() {
    let Some(first) = InContainer::sh("echo mine > mine; echo mine > /tmp/mine; echo ready; exec sleep 1000") else {
        return;
    };
    let mut running = first.work.start().await;
    output_has(&mut running, "ready").await;
    let look = format!(
        "cat {}/mine 2>/dev/null; ls /tmp; ls / | grep -c gpufleet-; ps | grep -c '[s]leep 1000'; ls -d /proc/[0-9]* | wc -l",
        first.work.in_folder("files").display()
    );
    let Some(second) = InContainer::sh(&look) else { return };
    let output = second.work.run().await.output;
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[..2], ["0", "0"], "{output}");
    // The init, the shell, and those that count.
    assert!(lines[2].parse::<u32>().unwrap() <= 4, "{output}");
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_the_worker_are_nowhere_in_a_container() {
    let script = "env; cat /proc/*/environ; cat /proc/1/maps && echo open; ls -l /proc/1/fd && echo open; true";
    let Some(mut container) = InContainer::sh(script) else { return };
    let text = format!("#!/bin/sh\nGPUFLEET_AMQP_URL=of-the-broker exec {} \"$@\"\n", executable().display());
    container.work.executable = container.work.script("worker", &text);
    let output = container.work.succeed().await;
    assert!(output.contains("GPUFLEET_ON_WORKER=1"), "{output}");
    assert!(!output.contains("of-the-broker") && !output.contains("\nopen"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_meets_the_limit_of_processes() {
    let limits = ProgramLimits { memory_bytes: None, pids: Some(32) };
    let script = "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo survived";
    let Some(container) = InContainer::limited(&["sh", "-c", script], limits) else { return };
    let run = container.work.run().await;
    assert!(run.output.contains("can't fork") && !run.output.contains("survived"), "{run:?}");
    // The same for a program in an environment.
    let mut work = Work::sh(script);
    work.spec.cgroup = container.cgroup.entrances();
    let run = work.run().await;
    assert!(run.output.contains("Cannot fork") && !run.output.contains("survived"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_needs_too_much_memory_is_killed() {
    let limits = ProgramLimits { memory_bytes: Some(64 << 20), pids: Some(64) };
    let command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"];
    let Some(container) = InContainer::limited(&command, limits) else { return };
    let run = container.work.run().await;
    assert_eq!(run.exit_code(), Some(128 + 9), "{run:?}");
    assert!(container.cgroup.was_out_of_memory());
    // Its files in memory count too.
    let fill = ["dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M", "count=200"];
    let Some(container) = InContainer::limited(&fill, limits) else { return };
    let run = container.work.run().await;
    assert!(run.exit_code() != Some(0), "{run:?}");
    let Some(container) = InContainer::limited(&["true"], limits) else { return };
    assert!(!container.cgroup.was_out_of_memory());
    let mut work = Work::new(&command);
    work.spec.cgroup = container.cgroup.entrances();
    assert_eq!(work.run().await.signal(), Some(9));
    assert!(container.cgroup.was_out_of_memory());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_can_not_start_is_refused_with_what_to_do() {
    for (command, part) in [
        (&["no-such-command"][..], "\"no-such-command\": command not found in the image localhost/busybox:2"),
        (&["./train.sh"], "upload it and start it as ./train.sh"),
        (&["./notes"], "chmod +x"),
    ] {
        let Some(container) = InContainer::limited(command, ProgramLimits::default()) else { return };
        container.work.upload(&[file("notes", 0o644, "text")]);
        let run = container.work.run().await;
        assert!(run.refusal().contains(part), "{run:?}");
        assert_eq!(run.output, "");
    }
    // A program may end with podman's own exit codes.
    let Some(container) = InContainer::sh("no-such-command") else { return };
    let run = container.work.run().await;
    assert!(run.exit_code() == Some(127) && run.output.contains("not found"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_has_gone_is_named() {
    let Some(mut container) = InContainer::sh("true") else { return };
    let Place::Container(spec) = &mut container.work.spec.place else { panic!("it is in a container") };
    spec.image = "localhost/gone:1".to_owned();
    let run = container.work.run().await;
    assert!(matches!(&run.last, HostEvent::Died(why) if why.contains("localhost/gone:1")), "{run:?}");
    assert_eq!(processes_with(&unique(&container.work.spec.folder)), Vec::<u32>::new());
}

/// Starts a worker whose pool has containers. Returns its exit code and what it wrote.
fn worker(arguments: &[&str]) -> (Option<i32>, String) {
    let mut worker = std::process::Command::new(executable());
    worker.args(["run", "--cuda", "emulated", "--pool", "p:programs=1,program-isolation=podman"]).args(arguments);
    // It does not come so far as to connect.
    let output = worker.env("GPUFLEET_AMQP_URL", "amqp://127.0.0.1:1").output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_worker_without_podman_or_the_image_does_not_start_and_says_why() {
    let (code, said) = worker(&[]);
    assert!(code == Some(2) && said.contains("add --image IMAGE"), "{said}");
    let (code, said) = worker(&["--image", "localhost/gone:1", "--podman", "/no/podman"]);
    if !is_root() {
        assert!(code == Some(2) && said.contains("only a worker that is root"), "{said}");
        return;
    }
    assert!(code == Some(2) && said.contains("`/no/podman info` failed") && said.contains("install podman"), "{said}");
    let podman = InContainer::sh("true").unwrap().store.podman();
    let (code, said) = worker(&["--image", "localhost/gone:1", "--podman", &podman]);
    assert!(code == Some(2) && said.contains("podman has no image localhost/gone:1"), "{said}");
    assert!(said.contains(&format!("{podman} pull localhost/gone:1")), "{said}");
    let broken = format!("{podman} --runtime /no/runtime");
    let (code, said) = worker(&["--image", "localhost/busybox:2", "--podman", &broken]);
    assert!(code == Some(2) && said.contains("/no/runtime"), "{said}");
}
