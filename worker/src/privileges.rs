//! Drops a child's privileges before it handles untrusted data: capabilities, the root user, ways to regain privileges, and descriptors
//! inherited by accident.
//!
//! The functions require a process with one thread, because the kernel keeps privileges per thread and new threads inherit them.

use std::{
    ffi::{CStr, CString},
    io, mem, ptr,
};

use rustix::{
    process::{
        DumpableBehavior, Gid, Pid, Resource, Rlimit, Signal, Uid, getegid, geteuid, getppid, set_dumpable_behavior,
        set_parent_process_death_signal, setrlimit,
    },
    thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs},
};

/// Default user of a child that root starts.
pub const USER_DEFAULT: &str = "nobody";
/// User id of `nobody`, for a container without a user list.
const NOBODY: libc::uid_t = 65534;
/// Maximum length of a line in the user list, in bytes; longer lines are ignored.
const ACCOUNT_BYTES_MAX: usize = 16 << 10;

/// Why dropping privileges failed.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("user {0:?} does not exist on this machine")]
    NoUser(String),
    #[error("only root can switch to user {0:?}")]
    NotRoot(String),
    #[error("failed to switch to user {user:?}: {source}")]
    Become { user: String, source: io::Error },
    #[error("failed to {what}: {source}")]
    Call { what: &'static str, source: io::Error },
    #[error("the supervisor has ended")]
    Orphaned,
}

/// An entry of the user list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    name: Option<CString>,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Hides this process from all users but root: other processes of its user can't read its memory, environment or descriptors in `/proc`, or
/// trace it. If the worker is not root, executors are such processes. Programs that this process starts are not hidden.
pub fn hide() -> Result<(), PrivilegeError> {
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hidden.map_err(failed("protect the process from others of the same user"))
}

/// Ensures that programs started by this process gain no privileges, that its memory is never dumped to a file, and that it is hidden from
/// other processes of its user.
pub fn refuse_new() -> Result<(), PrivilegeError> {
    hide()?;
    set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("disable core dumps"))
}

/// Closes every descriptor except the standard ones. The parent's own descriptors are closed at exec; this closes those that a library in
/// the parent, or the parent's parent, left open.
pub fn close_inherited() -> Result<(), PrivilegeError> {
    let first = libc::STDERR_FILENO as libc::c_uint + 1;
    // SAFETY: at the start of a program, no code owns a descriptor other than the standard ones.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return Err(failed("close inherited descriptors")(error));
    }
    // Linux before 5.9 lacks the call, so list the descriptors.
    let open = std::fs::read_dir("/proc/self/fd").map_err(failed("list inherited descriptors"))?;
    let open: Vec<i32> = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > libc::STDERR_FILENO) {
        // SAFETY: as above. The descriptor of the list is already closed, and closing it again is a harmless error.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

/// Drops root as [`become_user`] does, and ensures that this process still dies with the thread that started it, because a change of the
/// user clears the parent-death signal.
pub fn leave_root(user: Option<&str>) -> Result<(), PrivilegeError> {
    let parent = getppid();
    become_user(user)?;
    die_with(parent)
}

/// Drops root, if this process is root, and every capability, and hides the process. `user` is a name or a number; the default is
/// [`USER_DEFAULT`]. With the user `root` the process stays root but loses the capabilities.
pub fn become_user(user: Option<&str>) -> Result<(), PrivilegeError> {
    let own = geteuid();
    if own.is_root() {
        let user = user.unwrap_or(USER_DEFAULT);
        let account = Account::find(user)?;
        if account.uid != 0 {
            account.become_it().map_err(|source| PrivilegeError::Become { user: user.to_owned(), source })?;
        }
    } else if let Some(user) = user
        && Account::find(user)?.uid != own.as_raw()
    {
        return Err(PrivilegeError::NotRoot(user.to_owned()));
    }
    drop_capabilities()?;
    // A change of the user may have made the process visible again, depending on fs.suid_dumpable.
    hide()
}

/// Returns the user and group ids that a process has after [`become_user`].
pub(crate) fn ids_after_change(user: Option<&str>) -> Result<(Uid, Gid), PrivilegeError> {
    if !geteuid().is_root() {
        return Ok((geteuid(), getegid()));
    }
    let account = Account::find(user.unwrap_or(USER_DEFAULT))?;
    Ok((Uid::from_raw(account.uid), Gid::from_raw(account.gid)))
}

/// Drops every capability of this thread. Under `no_new_privs` it can't regain one.
pub fn drop_capabilities() -> Result<(), PrivilegeError> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(failed("drop the capabilities"))
}

/// Sets the parent-death signal again, because a change of the user clears it.
pub(crate) fn die_with(parent: Option<Pid>) -> Result<(), PrivilegeError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("set the parent-death signal"))?;
    // A parent that has already died sends no signal.
    if getppid() == parent { Ok(()) } else { Err(PrivilegeError::Orphaned) }
}

impl Account {
    fn find(user: &str) -> Result<Self, PrivilegeError> {
        let name = CString::new(user).map_err(|_| PrivilegeError::NoUser(user.to_owned()))?;
        if let Some(account) = Self::by_name(&name) {
            return Ok(account);
        }
        match user.parse() {
            Ok(uid) => Ok(Self { name: None, uid, gid: uid }),
            Err(_) if user == USER_DEFAULT => Ok(Self { name: None, uid: NOBODY, gid: NOBODY }),
            Err(_) => Err(PrivilegeError::NoUser(user.to_owned())),
        }
    }

    fn by_name(name: &CStr) -> Option<Self> {
        let mut texts: Vec<libc::c_char> = vec![0; ACCOUNT_BYTES_MAX];
        let mut found = ptr::null_mut();
        // SAFETY: `entry` is a local, and all-zero is valid for it. Its texts go into a live buffer of the length that is passed.
        let (entry, answer) = unsafe {
            let mut entry: libc::passwd = mem::zeroed();
            let answer =
                libc::getpwnam_r(name.as_ptr(), &raw mut entry, texts.as_mut_ptr(), texts.len(), &raw mut found);
            (entry, answer)
        };
        (answer == 0 && !found.is_null()).then(|| Self {
            name: Some(name.to_owned()),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
        })
    }

    /// Changes to this user with all its groups, because `video` or `render` may grant access to device nodes. The C library looks up the
    /// groups. It changes all threads, in case a library has started one.
    fn become_it(&self) -> io::Result<()> {
        // SAFETY: the name is a live C string; an empty set of groups needs no list.
        let grouped = unsafe {
            match &self.name {
                Some(name) => libc::initgroups(name.as_ptr(), self.gid),
                None => libc::setgroups(0, ptr::null()),
            }
        };
        // The user comes last, because only root may change the groups. All three ids are set, so that the change can't be undone.
        // SAFETY: these calls take integers only.
        let changed = unsafe {
            grouped == 0
                && libc::setresgid(self.gid, self.gid, self.gid) == 0
                && libc::setresuid(self.uid, self.uid, self.uid) == 0
        };
        if changed { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn failed<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> PrivilegeError {
    move |source| PrivilegeError::Call { what, source: source.into() }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _, stdin},
        os::unix::process::CommandExt as _,
        process::{Command, Stdio},
    };

    use super::*;

    const CHILD: &str = "GPUFLEET_TEST_HIDING_CHILD";
    const TEST: &str = "privileges::tests::who_refuses_new_privileges_is_closed_to_others_of_its_user";

    /// Runs this test again as an unprivileged child, and inspects that child as the child's own user.
    #[test]
    fn who_refuses_new_privileges_is_closed_to_others_of_its_user() {
        if std::env::var_os(CHILD).is_some() {
            println!("open");
            stdin().read_exact(&mut [0]).unwrap();
            refuse_new().unwrap();
            println!("hidden");
            stdin().read_exact(&mut [0]).unwrap();
            return;
        }
        // The child's user can open the program by this path even if it is in a folder that only root can read.
        let mut command = as_nobody("/proc/self/exe");
        command.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let looks = || {
            let path = format!("/proc/{}/environ", child.id());
            as_nobody("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
        };
        assert!(lines.any(|line| line.ends_with("open")));
        assert!(looks());
        child.stdin.as_ref().unwrap().write_all(b".").unwrap();
        assert!(lines.any(|line| line == "hidden"));
        assert!(!looks());
        child.stdin.take().unwrap().write_all(b".").unwrap();
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }

    /// Returns a command that runs as `nobody` if the test runs as root, and otherwise as the same user.
    fn as_nobody(program: &str) -> Command {
        let mut command = Command::new(program);
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        assert_eq!(Account::find("root").unwrap().uid, 0);
        let numbered = Account::find("4711").unwrap();
        assert_eq!((numbered.uid, numbered.gid), (4711, 4711));
        assert_ne!(Account::find("nobody").unwrap().uid, 0);
        assert!(matches!(Account::find("no such user"), Err(PrivilegeError::NoUser(_))));
    }
}
