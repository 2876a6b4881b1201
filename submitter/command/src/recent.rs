//! The jobs that this user submitted on this machine a while ago, in a file of the user.
//!
//! The ledger learns of a job, and of its outcome, a moment after the command that submitted it. With this file the next command knows what to
//! wait for, and which job `@last` is.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use chrono::{DateTime, TimeDelta, Utc};
use gpufleet::schema::JobId;

use super::{complaint::Complaint, environment, exit::Exit};

/// The word for the job that was submitted last, in place of an id.
const LAST: &str = "@last";
/// The ledger has the events of a job that is older than this, unless the recorder is behind.
const FRESH: TimeDelta = TimeDelta::seconds(10);
/// Longer files are shortened. A line has about 60 bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The lines that a shortened file keeps.
const LINES_KEPT: usize = 256;

/// A part of an id with so many digits, as `gpufleet history` prints it on a narrow terminal, hardly occurs in two ids.
const DIGITS_OF_ONE_MIN: usize = 12;

/// What this user has seen of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The broker confirmed it.
    Submitted,
    /// Its outcome arrived.
    Ended,
}

/// A job that this user submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recent {
    pub job_id: JobId,
    pub seen: Seen,
    pub at: DateTime<Utc>,
    fleet: Fleet,
    /// When the outcome of an earlier submission under the same id arrived.
    earlier_at: Option<DateTime<Utc>>,
}

/// Tells fleets apart by the environment of the command, so that a list of one fleet does not wait for jobs of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fleet(u64);

impl Seen {
    const fn word(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Ended => "ended",
        }
    }
}

impl Recent {
    fn new(job_id: JobId, seen: Seen) -> Self {
        Self { job_id, seen, at: Utc::now(), fleet: Fleet::of(|name| env::var(name).ok()), earlier_at: None }
    }

    #[cfg(test)]
    pub fn seen_at(job_id: JobId, seen: Seen, at: DateTime<Utc>) -> Self {
        Self { at, ..Self::new(job_id, seen) }
    }

    pub fn is_submitted_again(&self) -> bool {
        self.earlier_at.is_some()
    }

    /// Whether an outcome is that of the latest submission, by the time of the one that it ended.
    pub fn is_of_latest(&self, submitted_at: Option<DateTime<Utc>>) -> bool {
        self.earlier_at.is_none_or(|earlier| submitted_at.is_some_and(|at| at >= earlier))
    }

    /// Whether the ledger may not have it yet.
    pub fn is_fresh(&self, now: DateTime<Utc>) -> bool {
        is_fresh(self.at, now)
    }

    fn line(&self) -> String {
        format!("{} {} {} {:x}\n", self.job_id, self.at.timestamp_millis(), self.seen.word(), self.fleet.0)
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (job_id, at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let word = words.next()?;
        let seen = [Seen::Submitted, Seen::Ended].into_iter().find(|seen| seen.word() == word)?;
        let fleet = Fleet(u64::from_str_radix(words.next()?, 16).ok()?);
        Some(Self { job_id, seen, at: DateTime::from_timestamp_millis(at)?, fleet, earlier_at: None })
    }
}

impl Fleet {
    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut hasher = DefaultHasher::new();
        for name in environment::OF_FLEET {
            // Without the user and the password of a URL.
            variable(name).map(|value| value.rsplit('@').next().unwrap_or_default().to_owned()).hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

/// Whether the time is a few seconds ago.
pub fn is_fresh(at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (now - at).abs() <= FRESH
}

/// Notes what was seen of a job. A user without a writable home has no recent jobs, which is no reason to fail.
pub fn note(job_id: JobId, seen: Seen) {
    if let Some(file) = file() {
        append(&file, &Recent::new(job_id, seen)).ok();
    }
}

/// The jobs, in the order of their submission.
pub fn all() -> Vec<Recent> {
    file().map(|file| read(&file)).unwrap_or_default()
}

/// The jobs of the fleet of this command.
pub fn of_fleet() -> Vec<Recent> {
    let fleet = Fleet::of(|name| env::var(name).ok());
    all().into_iter().filter(|job| job.fleet == fleet).collect()
}

/// The text, or the id of the last job in place of `@last`.
pub fn resolve(id: &str) -> Result<String, Complaint> {
    if id != LAST {
        return Ok(id.to_owned());
    }
    all().last().map(|last| last.job_id.to_string()).ok_or_else(|| {
        Complaint::new(Exit::NotFound, format!("{LAST} names no job: this user has not submitted one on this machine"))
            .hint("give the id of a job; `gpufleet history` lists the jobs")
    })
}

/// The jobs whose id begins or ends with the text, with or without hyphens.
pub fn named<'a>(text: &str, jobs: &'a [Recent]) -> impl DoubleEndedIterator<Item = &'a Recent> {
    let typed = digits(text);
    jobs.iter().filter(move |job| {
        let id = digits(&job.job_id.to_string());
        !typed.is_empty() && (id.starts_with(&typed) || id.ends_with(&typed))
    })
}

/// The id that the text is the beginning or the end of, if it is that of one job alone.
pub fn complete(text: &str, jobs: &[Recent]) -> Option<JobId> {
    let mut named = named(text, jobs);
    let (first, second) = (named.next(), named.next());
    // A shorter text may also be a part of the ids of others.
    let is_long = digits(text).len() >= DIGITS_OF_ONE_MIN;
    first.filter(|_| second.is_none() && is_long).map(|job| job.job_id)
}

/// An id without its hyphens, in lower case.
pub fn digits(id: &str) -> String {
    id.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

/// `gpufleet/recent-jobs` in the folder for state of the XDG base directory specification.
fn file() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("gpufleet/recent-jobs"))
}

/// Appends a line with one write, so that commands which run at the same time keep each other's lines.
fn append(file: &Path, recent: &Recent) -> io::Result<()> {
    let folder = file.parent().expect("the file is in a folder");
    fs::create_dir_all(folder)?;
    let mut lines = fs::OpenOptions::new().append(true).create(true).open(file)?;
    lines.write_all(recent.line().as_bytes())?;
    if lines.metadata()?.len() > FILE_BYTES_MAX {
        shorten(file, folder)?;
    }
    Ok(())
}

/// Replaces the file at once, because another command may be reading it. A line that is appended meanwhile is lost.
fn shorten(file: &Path, folder: &Path) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let kept = lines[lines.len().saturating_sub(LINES_KEPT)..].concat();
    let written = folder.join(format!("recent-jobs.{}", std::process::id()));
    fs::write(&written, kept)?;
    fs::rename(&written, file)
}

fn read(file: &Path) -> Vec<Recent> {
    let mut jobs: Vec<Recent> = Vec::new();
    for recent in fs::read_to_string(file).unwrap_or_default().lines().filter_map(Recent::of_line) {
        match jobs.iter().position(|job| job.job_id == recent.job_id) {
            Some(known) if recent.seen == Seen::Ended => {
                jobs[known] = Recent { earlier_at: jobs[known].earlier_at, ..recent };
            }
            // It was submitted again under its id.
            Some(known) => {
                let known = jobs.remove(known);
                let earlier_at = if known.seen == Seen::Ended { Some(known.at) } else { known.earlier_at };
                jobs.push(Recent { earlier_at, ..recent });
            }
            None => jobs.push(recent),
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(job_id: JobId, seen: Seen) -> Recent {
        let at = DateTime::from_timestamp_millis(1_795_000_000_123).unwrap();
        Recent::seen_at(job_id, seen, at)
    }

    #[test]
    fn fleets_differ_by_their_addresses_and_not_by_passwords() {
        let fleet = |url: &str| Fleet::of(|name| (name == environment::AMQP_URL).then(|| url.to_owned()));
        assert_eq!(fleet("amqp://anna:one@h/v"), fleet("amqp://anna:two@h/v"));
        assert_ne!(fleet("amqp://anna@h/v"), fleet("amqp://anna@h/w"));
        assert_ne!(fleet("amqp://anna@h/v"), Fleet::of(|_| None));
    }

    #[test]
    fn jobs_are_read_in_the_order_of_their_submission_with_what_was_seen_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/gpufleet/recent-jobs");
        assert_eq!(read(&file), []);
        let (first, second) = (JobId::new(), JobId::new());
        for (job, seen) in [(first, Seen::Submitted), (second, Seen::Submitted), (first, Seen::Ended)] {
            append(&file, &recent(job, seen)).unwrap();
        }
        assert_eq!(read(&file), [recent(first, Seen::Ended), recent(second, Seen::Submitted)]);
        append(&file, &recent(first, Seen::Submitted)).unwrap();
        let again = Recent { earlier_at: Some(recent(first, Seen::Ended).at), ..recent(first, Seen::Submitted) };
        assert_eq!(read(&file).last(), Some(&again), "submitted again");
        assert!(again.is_of_latest(Some(again.at)) && !again.is_of_latest(Some(again.at - FRESH)));
    }

    #[test]
    fn a_long_file_is_shortened_to_its_latest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recent-jobs");
        fs::write(&file, recent(JobId::new(), Seen::Submitted).line().repeat(2000)).unwrap();
        let last = recent(JobId::new(), Seen::Submitted);
        append(&file, &last).unwrap();
        assert!(fs::metadata(&file).unwrap().len() < FILE_BYTES_MAX);
        assert_eq!(read(&file).last(), Some(&last));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_damaged_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recent-jobs");
        let whole = recent(JobId::new(), Seen::Submitted);
        let text =
            format!("\n0199 1 submitted 0\n{} x ended 0\n{} 1 gone 0\n{}", JobId::new(), JobId::new(), whole.line());
        fs::write(&file, text).unwrap();
        assert_eq!(read(&file), [whole]);
    }

    #[test]
    fn a_long_part_of_an_id_names_one_job() {
        let jobs: Vec<Recent> = ["01990f3e-0000-7000-8000-00000000000a", "01990f3e-0000-7000-8000-00000000000b"]
            .into_iter()
            .map(|id| recent(id.parse().unwrap(), Seen::Submitted))
            .collect();
        assert_eq!(complete("00000000000B", &jobs), Some(jobs[1].job_id));
        assert_eq!(complete("000b", &jobs), None, "too short");
        assert_eq!(complete("01990f3e-0000-7000", &jobs), None, "two jobs");
        assert_eq!(named("0b", &jobs).count(), 1);
    }

    #[test]
    fn any_other_text_stays_as_it_is() {
        assert_eq!(resolve("0a1b2c3d4e5f").unwrap(), "0a1b2c3d4e5f");
    }
}
