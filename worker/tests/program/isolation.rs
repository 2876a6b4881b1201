//! What a program can't reach: other programs, the worker's secrets, and the machine's files and devices.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
};

use rustix::process::geteuid;

use crate::harness::{NOBODY, Work, executable, is_root, output_has};

#[tokio::test(flavor = "multi_thread")]
async fn programs_see_neither_each_others_files_nor_processes() {
    let first = Work::sh("echo mine > mine; echo public > /tmp/mine; echo ready; exec sleep 1000");
    let mut running = first.start().await;
    output_has(&mut running, "ready").await;
    let files = first.in_folder("files");
    assert_eq!(fs::read_to_string(files.join("mine")).unwrap(), "mine\n");
    let look = format!(
        "cat {0}/mine; ls {0}; echo x > {0}/theirs; ls /tmp/mine; ls -d /proc/[0-9]* | wc -l; ps ax -o args | grep -c '[s]leep 1000'",
        files.display()
    );
    let output = Work::sh(&format!("{{ {look}; }} 2>/dev/null; true")).succeed().await;
    let lines: Vec<_> = output.lines().collect();
    // The init, the shell, and those that count.
    assert!(lines[0].parse::<u32>().unwrap() <= 4, "{output}");
    assert!(lines[1..].iter().all(|line| *line == "0"), "{output}");
    assert!(!files.join("theirs").exists());
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_the_worker_are_nowhere() {
    let mut work = Work::sh(
        "env; cat /proc/*/environ; cat /proc/1/maps && echo open; cat /proc/1/mem && echo open; ls -l /proc/1/fd && echo open; true",
    );
    let text = format!(
        "#!/bin/sh\nSECRET=of-the-worker GPUFLEET_AMQP_URL=of-the-broker exec {} \"$@\"\n",
        executable().display()
    );
    work.executable = work.script("worker", &text);
    let output = work.succeed().await;
    assert!(output.contains("GPUFLEET_ON_WORKER=1"), "{output}");
    for secret in ["of-the-worker", "of-the-broker", "\nopen"] {
        assert!(!output.contains(secret), "{secret}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_writes_its_own_folders_only() {
    let mut work = Work::sh("");
    let environment = work.environment.display().to_string();
    fs::write(work.environment.join("settings"), "x").unwrap();
    fs::set_permissions(work.environment.join("settings"), Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(work.environment.join("bin"), Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "for folder in / /usr /etc /var /opt /run /dev /sys /proc/sys /root /home {environment}/bin; do\n\
         \x20 if echo x > $folder/written-by-a-program; then echo wrote $folder; fi\n\
         done\n\
         echo x > {environment}/settings && echo wrote settings\n\
         chmod 600 {environment}/settings && echo changed settings\n\
         echo x > $HOME/../written-by-a-program\n\
         for folder in . /tmp /var/tmp /dev/shm; do echo x > $folder/x || echo not $folder; done\n\
         echo x > /dev/null; cat {environment}/settings > /dev/null || echo closed\n"
    );
    work.spec.command = vec!["sh".to_owned(), "-c".to_owned(), script];
    let output = work.succeed().await;
    let said: Vec<_> = output.lines().filter(|line| !line.starts_with("sh:") && !line.starts_with("chmod:")).collect();
    assert!(said.is_empty(), "{output}");
    assert_eq!(fs::read_to_string(work.environment.join("settings")).unwrap(), "x");
    // In the program's own /tmp, folders on the way to its files may be open to it.
    assert!(!work.in_folder("written-by-a-program").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_machine_and_the_worker_are_closed() {
    let mut work = Work::sh("");
    fs::write(work.beside("secret"), "of the machine").unwrap();
    fs::write(work.in_folder("notes"), "of the worker").unwrap();
    let script = format!(
        "cat {0}/secret; cat $HOME/../notes; cat $HOME/../log; ls $HOME/..; ls {1}; ls /root; ls /home; ls /var/log; ls /run/*; \
         cat /etc/shadow; cat /dev/mem; cat /dev/kmsg; cat /dev/vda | head -c 1; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; true",
        work.beside("").display(),
        env!("CARGO_MANIFEST_DIR")
    );
    work.spec.command = vec!["sh".to_owned(), "-c".to_owned(), script];
    let output = work.succeed().await;
    let errors = ["denied", "permitted", "No such file"];
    // A folder that is covered has at most the program's own folders in it.
    let said = output.lines().filter(|line| !errors.iter().any(|error| line.contains(error)) && *line != "files");
    assert_eq!(said.collect::<Vec<_>>(), Vec::<&str>::new(), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_no_privileges_and_can_get_none() {
    let output = Work::sh("id -u; grep -E '^(Cap|NoNewPrivs)' /proc/self/status").succeed().await;
    let mut lines = output.lines();
    let user: u32 = lines.next().unwrap().parse().unwrap();
    // As root, programs run as `nobody`; otherwise as the worker's user.
    assert_eq!(user, if is_root() { NOBODY } else { geteuid().as_raw() });
    for line in lines {
        let (name, value) = line.split_once(":\t").unwrap();
        match name {
            "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => assert_eq!(value, "0000000000000000", "{name}"),
            "NoNewPrivs" => assert_eq!(value, "1"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_the_machine_are_shared() {
    let script = "import resource as r\n\
                  print(*(r.getrlimit(limit)[1] for limit in (r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_NPROC, r.RLIMIT_FSIZE)))";
    let output = Work::python(script).succeed().await;
    let limits: Vec<u64> = output.split_whitespace().map(|limit| limit.parse().unwrap()).collect();
    assert!(limits[0] == 0 && limits[1] <= 65536 && limits[2] <= 4096, "{output}");
    assert_eq!(limits[3], crate::harness::FILE_BYTES_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_not_root_isolates_programs_in_a_user_namespace() {
    let mut work =
        Work::sh("id -u; ls -d /proc/[0-9]* | wc -l; grep CapEff /proc/self/status; echo kept > kept; cat ../log")
            .download(&["kept"]);
    if is_root() {
        // The guard becomes another user, as if the worker ran as that user. The program's file may be in a folder that is closed to it.
        let text = format!(
            "#!/bin/sh\nexec 9<{}\nexec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups /proc/self/fd/9 \"$@\"\n",
            executable().display()
        );
        work.executable = work.script("worker", &text);
        fs::set_permissions(work.beside(""), Permissions::from_mode(0o755)).unwrap();
        chown(&work.spec.folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let run = work.run().await;
    let user = if is_root() { NOBODY } else { geteuid().as_raw() };
    let lines: Vec<_> = run.output.lines().collect();
    assert_eq!(lines[0], user.to_string(), "{run:?}");
    assert!(lines[1].parse::<u32>().unwrap() <= 4, "{run:?}");
    assert_eq!(lines[2], "CapEff:\t0000000000000000");
    assert!(lines[3].contains("denied") || lines[3].contains("No such file"), "{run:?}");
    assert_eq!(work.packed()["kept"].1, "kept\n");
}
