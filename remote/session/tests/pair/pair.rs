//! Both drivers: the emulator, and the library whose session runs a second emulator.

use std::{
    env, fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use gpufleet_remote::greeting::TOKEN_BYTES;
use gpufleet_session::{Limits, Native, serve::serve};
use libloading::Library;

/// The session's device memory in bytes: all that the device has.
const MEMORY: u64 = u64::MAX;

pub struct Pair {
    /// The emulator in this process.
    pub here: &'static Library,
    /// The library whose calls go to a session.
    pub there: &'static Library,
}

/// How the library sends calls that return nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It waits for each answer.
    Asks,
    /// It waits for none; a failure comes with the next answer.
    Posts,
}

struct Libraries {
    here: Library,
    asks: Library,
    posts: Library,
}

/// Returns both drivers, for one test at a time, because contexts and devices are those of the process.
pub fn pair(mode: Mode) -> (Pair, MutexGuard<'static, ()>) {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let libraries = LIBRARIES.get_or_init(open);
    let there = if mode == Mode::Asks { &libraries.asks } else { &libraries.posts };
    (Pair { here: &libraries.here, there }, one)
}

fn open() -> Libraries {
    let here = load(&built("libgpufleet_emulator.so"));
    Libraries { here, asks: in_session(Mode::Asks), posts: in_session(Mode::Posts) }
}

/// Loads a library of its own with a session of its own.
fn in_session(mode: Mode) -> Library {
    // The folder is needed as long as the process, which forgets it. The same file again would be the same library.
    let folder = tempfile::tempdir().unwrap().keep();
    let (driver, library) = (folder.join("driver.so"), folder.join("library.so"));
    fs::copy(built("libgpufleet_emulator.so"), &driver).unwrap();
    fs::copy(built("libgpufleet_driver.so"), &library).unwrap();
    let socket = folder.join("session");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let native = Arc::new(Native::load(&driver).unwrap());
        let (stream, _) = listener.accept().unwrap();
        serve(native, Limits { memory: MEMORY }, &[0; TOKEN_BYTES], stream, Arc::default()).unwrap();
    });
    // SAFETY: no other thread reads the environment meanwhile, because all tests that do wait for these libraries.
    unsafe {
        env::set_var("GPUFLEET_SESSION_SOCKET", &socket);
        env::set_var("GPUFLEET_SESSION_SYNC", if mode == Mode::Asks { "1" } else { "0" });
    }
    let library = load(&library);
    // SAFETY: the type of the function in the C headers.
    let init = unsafe { library.get::<extern "C" fn(u32) -> i32>(b"cuInit\0") }.unwrap();
    // The library reads the variables now, and never again.
    assert_eq!(init(0), 0);
    library
}

fn load(path: &Path) -> Library {
    // SAFETY: the libraries are ours.
    unsafe { Library::new(path) }.unwrap_or_else(|error| panic!("failed to open {}: {error}", path.display()))
}

/// Returns a library that Cargo built beside this test.
pub fn built(name: &str) -> PathBuf {
    env::current_exe().unwrap().with_file_name(name)
}
