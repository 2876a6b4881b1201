use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use super::*;

const LARGE: u64 = 1 << 30;

fn key(number: u64) -> blake3::Hash {
    blake3::hash(&number.to_le_bytes())
}

fn program(ptx: &str) -> Compiled {
    Compiled {
        ptx: ptx.to_owned(),
        cubin: Some(vec![0x7f, 0, 255]),
        log: "warning: none".to_owned(),
        micros: 7,
        version: "12.9".to_owned(),
        symbols: BTreeMap::from([("k<float>".to_owned(), "_Z1kIfEvPT_".to_owned())]),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn bytes_in(folder: &Path) -> u64 {
    files(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Returns a folder with the mode that a store requires.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("cache/modules");
    (parent, folder)
}

#[test]
fn a_program_comes_back_as_it_was_also_to_another_worker() {
    let (_parent, folder) = folder();
    let store = ProgramStore::open(&folder, LARGE).unwrap();
    assert!(store.get(key(1)).unwrap().is_none());
    store.put(key(1), &program("one")).unwrap();
    let other = ProgramStore::open(&folder, LARGE).unwrap();
    assert_eq!(other.get(key(1)).unwrap(), Some(program("one")));
    assert!(other.get(key(2)).unwrap().is_none());
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&files(&folder)[0]).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn what_was_not_used_for_longest_goes_first_and_the_cap_holds() {
    let (_parent, folder) = folder();
    let one = encode(key(0), &program("0")).unwrap().len() as u64;
    let store = ProgramStore::open(&folder, 3 * one).unwrap();
    for number in 0..3 {
        store.put(key(number), &program(&number.to_string())).unwrap();
    }
    store.get(key(0)).unwrap().expect("it was put there");
    store.touch(key(1)).unwrap();
    store.put(key(3), &program("3")).unwrap();
    assert!(store.get(key(2)).unwrap().is_none(), "the others were used after it");
    for number in [0, 1, 3] {
        assert!(store.get(key(number)).unwrap().is_some(), "{number}");
    }
    for number in 4..50 {
        store.put(key(number), &program("4")).unwrap();
        assert!(bytes_in(&folder) <= 3 * one);
    }
    store.put(key(99), &program(&"x".repeat(1000))).unwrap();
    assert!(store.get(key(99)).unwrap().is_none(), "it alone is beyond the cap");
    assert!(store.get(key(49)).unwrap().is_some(), "and nothing goes for its sake");
    store.touch(key(4)).unwrap();
}

#[test]
fn a_file_that_is_damaged_anywhere_is_found_and_removed() {
    let (_parent, folder) = folder();
    let store = ProgramStore::open(&folder, LARGE).unwrap();
    let path = store.path(key(1));
    store.put(key(1), &program("one")).unwrap();
    let whole = fs::read(&path).unwrap();
    let flipped = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    });
    let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
    let longer = [whole.iter().copied().chain([0]).collect()];
    for bytes in flipped.chain(cut).chain(longer) {
        fs::write(&path, &bytes).unwrap();
        assert_eq!(store.get(key(1)).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(!path.exists(), "so that it is compiled again");
    }
    assert!(store.get(key(1)).unwrap().is_none());
    store.put(key(1), &program("one")).unwrap();
    assert_eq!(store.get(key(1)).unwrap(), Some(program("one")));
}

#[test]
fn a_program_under_anothers_name_is_not_taken_for_it() {
    let (_parent, folder) = folder();
    let store = ProgramStore::open(&folder, LARGE).unwrap();
    store.put(key(1), &program("one")).unwrap();
    fs::rename(store.path(key(1)), store.path(key(2))).unwrap();
    assert!(store.get(key(2)).is_err());
}

#[test]
fn a_file_that_others_may_have_written_is_not_read() {
    let (_parent, folder) = folder();
    let store = ProgramStore::open(&folder, LARGE).unwrap();
    store.put(key(1), &program("one")).unwrap();
    fs::set_permissions(store.path(key(1)), Permissions::from_mode(0o666)).unwrap();
    assert!(store.get(key(1)).is_err());
    store.put(key(2), &program("two")).unwrap();
    fs::rename(store.path(key(2)), folder.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.join("elsewhere"), store.path(key(2))).unwrap();
    assert!(store.get(key(2)).is_err(), "a link may lead anywhere");
}

#[test]
fn a_folder_that_others_may_enter_is_not_used() {
    let (parent, folder) = folder();
    ProgramStore::open(&folder, LARGE).unwrap();
    for mode in [0o777, 0o770, 0o755] {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        assert!(matches!(ProgramStore::open(&folder, LARGE), Err(ProgramStoreError::Open { .. })), "{mode:o}");
    }
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(ProgramStore::open(&file, LARGE), Err(ProgramStoreError::Io { .. })));
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    assert!(matches!(ProgramStore::open(&link, LARGE), Err(ProgramStoreError::NoFolder { .. })));
}

#[test]
fn remains_of_a_dead_worker_go_and_those_of_one_at_work_stay() {
    let (_parent, folder) = folder();
    let store = ProgramStore::open(&folder, LARGE).unwrap();
    let (old, new) = (folder.join("1-0.tmp"), folder.join("2-0.tmp"));
    fs::write(&new, "half a prog").unwrap();
    let long_ago = SystemTime::now() - 2 * REMAINS_KEPT;
    File::create(&old).unwrap().set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    store.put(key(1), &program("one")).unwrap();
    assert!(!old.exists() && new.exists());
}

#[test]
fn a_program_is_kept_while_another_worker_holds_the_folder() {
    let (_parent, folder) = folder();
    let one = encode(key(0), &program("0")).unwrap().len() as u64;
    let store = ProgramStore::open(&folder, one).unwrap();
    let held = File::open(&folder).unwrap();
    held.lock().unwrap();
    store.put(key(0), &program("0")).unwrap();
    store.put(key(1), &program("1")).unwrap();
    assert_eq!(files(&folder).len(), 2, "the surplus stays for once");
    held.unlock().unwrap();
    store.put(key(2), &program("2")).unwrap();
    assert_eq!(files(&folder), [store.path(key(2))]);
}

#[test]
fn no_two_workers_write_to_one_temporary_file() {
    let (_parent, folder) = folder();
    let [first, second] = [(); 2].map(|()| ProgramStore::open(&folder, LARGE).unwrap());
    assert_ne!(first.own, second.own, "not even two of one process number");
}

/// Uses one folder as each of many workers does.
fn work(folder: &Path, bytes_max: u64) {
    let store = ProgramStore::open(folder, bytes_max).unwrap();
    for round in 0..200 {
        let number = round % 20;
        let text = number.to_string().repeat(500);
        if let Some(found) = store.get(key(number)).unwrap() {
            assert_eq!(found.ptx, text, "never half a program, never another's");
        }
        store.put(key(number), &program(&text)).unwrap();
    }
}

const FOLDER_OF_CHILD: &str = "GPUFLEET_TEST_STORE";
const CAP_OF_CHILD: u64 = 6_000;

#[test]
fn several_processes_share_a_folder() {
    if let Some(folder) = std::env::var_os(FOLDER_OF_CHILD) {
        return work(Path::new(&folder), CAP_OF_CHILD);
    }
    let (_parent, folder) = folder();
    let children: Vec<_> = (0..2)
        .map(|_| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "compiler::store::tests::several_processes_share_a_folder"])
                .env(FOLDER_OF_CHILD, &folder)
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    // Each of the workers may have skipped its last eviction because another one was evicting.
    ProgramStore::open(&folder, CAP_OF_CHILD).unwrap().put(key(0), &program("0")).unwrap();
    assert!(bytes_in(&folder) <= CAP_OF_CHILD);
    assert!(files(&folder).iter().all(|path| path.extension().unwrap() == EXTENSION), "nothing is left half written");
    assert!(!files(&folder).is_empty());
}
