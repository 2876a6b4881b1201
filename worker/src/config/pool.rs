//! A pool as given with `--pool`: `team-a:weight=3,memory=50%,allow=signed,time-max=1h`.

use std::{collections::BTreeSet, str::FromStr, time::Duration};

use gpufleet_schema::PoolName;

use super::{
    programs::{ProgramAllowance, ProgramLimit},
    time::TimeAllowances,
};
use crate::{
    policy::{Allow, UnknownAllow},
    scheduler::PoolGuarantee,
};

/// A pool that this worker serves, with its guarantees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    pub name: PoolName,
    pub guarantee: PoolGuarantee,
    pub allow: Allow,
    pub times: TimeAllowances,
    /// Whether jobs with large inputs have queues of their own ([`gpufleet_schema::affinity`]).
    pub affinity: bool,
    /// The broker users who may submit jobs; `None` if all may.
    pub users: Option<BTreeSet<String>>,
    pub sessions: SessionAllowance,
    pub programs: ProgramAllowance,
    /// The number of its executors on each device.
    pub executors: u32,
}

/// The sessions that a pool may have on this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionAllowance {
    /// Open sessions at a time, with those that wait here for memory; 0 if the pool takes none.
    pub count: u16,
    /// The part of each device's memory that all of them may have together, in thousandths. Otherwise idle sessions could keep the pool's
    /// jobs waiting for hours.
    pub memory_permille: u32,
    /// The longest time limit that a session may ask for.
    pub time_max: Duration,
    /// The longest time that a session may be idle, and the limit of one that sets none.
    pub idle_max: Duration,
}

impl Default for SessionAllowance {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self { count: 0, memory_permille: 500, time_max: hours(8), idle_max: Duration::from_secs(600) }
    }
}

/// Why a `--pool` is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PoolSpecError {
    #[error("{0}")]
    Name(String),
    #[error(
        "{0:?} is not a pool setting; use weight=N, memory=N%, allow=catalog|signed|source, users=NAME,NAME, affinity, executors=N, {TIMES}, {SESSIONS}, {PROGRAMS}"
    )]
    Option(String),
    #[error("users=: expected names of broker users, as in users=anna,bert")]
    Users,
    #[error("weight={0}: expected a whole number from 1 to {WEIGHT_MAX}")]
    Weight(String),
    #[error("memory={0}: expected a percentage of the device memory from 0.1% to 100%, as in memory=50%")]
    Memory(String),
    #[error(
        "executors={0}: expected a whole number from 1 to {EXECUTORS_MAX}; each executor takes a CUDA context on every device"
    )]
    Executors(String),
    #[error("sessions={0}: expected a whole number from 0 to {SESSIONS_MAX}")]
    Sessions(String),
    #[error("sessions: a session runs any code, so its pool needs allow=source")]
    SessionsNeedSource,
    #[error(
        "session-memory={0}: expected a percentage of the device memory from 0.1% to 100%, as in session-memory=50%"
    )]
    SessionMemory(String),
    #[error("session-time-max={0}: a broker redelivers a message after its consumer timeout, so use at most 7d")]
    SessionTime(String),
    #[error("programs={0}: expected a whole number from 0 to {PROGRAMS_MAX}")]
    Programs(String),
    #[error("programs: a host program runs any code, so its pool needs allow=source")]
    ProgramsNeedSource,
    #[error("program-time-max={0}: a broker redelivers a message after its consumer timeout, so use at most 7d")]
    ProgramTime(String),
    #[error("program-isolation={0}: expected environment or podman")]
    ProgramIsolation(String),
    #[error("program-memory={0}: expected a size of at least 16MiB, as in 64GiB, or off")]
    ProgramMemory(String),
    #[error("program-pids={0}: expected a whole number from 16 to 4194304, or off")]
    ProgramPids(String),
    #[error("{0}: expected a time such as 30s, 10m or 2h")]
    Time(String),
    #[error("{0}-default is longer than {0}-max")]
    Default(&'static str),
    #[error(transparent)]
    Allow(#[from] UnknownAllow),
}

/// Why several pools can't be served together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PoolsError {
    #[error("pool {0} is given twice")]
    Twice(PoolName),
    #[error("the pools reserve {}% of the device memory in total; the maximum is 100%", *.0 as f64 / 10.0)]
    Memory(u32),
}

/// Maximum weight. With larger weights, the rounding error would exceed the share of the smallest.
const WEIGHT_MAX: u32 = 1000;
const PERMILLE: u32 = 1000;
const TIMES: &str = "time-default=TIME, time-max=TIME, queue-default=TIME, queue-max=TIME";
const SESSIONS: &str = "sessions=N, session-memory=N%, session-time-max=TIME, session-idle=TIME";
const PROGRAMS: &str = "programs=N, program-time-max=TIME, program-network, program-isolation=environment|podman, program-memory=SIZE or program-pids=N";
/// Maximum number of executors of a pool on a device. Eight contexts take about 4 GiB of a GPU.
const EXECUTORS_MAX: u32 = 8;
/// Maximum number of sessions of a pool on a worker. Each takes two processes and a context on a device.
const SESSIONS_MAX: u16 = 256;
/// Maximum number of host programs of a pool on a worker. Each takes a device.
const PROGRAMS_MAX: u16 = 256;
/// The longest time limit of sessions and host programs: a day less than the consumer timeout that `deploy/` sets, which ends with a redelivery.
const UNACKNOWLEDGED_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl FromStr for PoolSpec {
    type Err = PoolSpecError;

    fn from_str(text: &str) -> Result<Self, PoolSpecError> {
        let (name, options) = text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
        let name = name.parse().map_err(|error| PoolSpecError::Name(format!("{error}")))?;
        let (mut guarantee, mut allow, mut times) =
            (PoolGuarantee::default(), Allow::default(), TimeAllowances::default());
        let (mut affinity, mut users, mut sessions) = (false, None::<BTreeSet<String>>, SessionAllowance::default());
        let (mut executors, mut programs) = (1, ProgramAllowance::default());
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            match option.split_once('=') {
                Some(("weight", value)) => guarantee.weight = weight(value)?,
                Some(("memory", value)) => guarantee.memory_permille = permille(value)?,
                Some(("allow", value)) => allow = value.parse()?,
                Some(("time-default", value)) => times.run.default = Some(time(option, value)?),
                Some(("time-max", value)) => times.run.max = Some(time(option, value)?),
                Some(("queue-default", value)) => times.queue.default = Some(time(option, value)?),
                Some(("queue-max", value)) => times.queue.max = Some(time(option, value)?),
                Some(("executors", value)) => executors = executor_count(value)?,
                Some(("sessions", value)) => sessions.count = session_count(value)?,
                Some(("session-memory", value)) => {
                    sessions.memory_permille =
                        permille(value).map_err(|_| PoolSpecError::SessionMemory(value.to_owned()))?;
                }
                Some(("session-time-max", value)) => {
                    sessions.time_max = time(option, value)?;
                    if sessions.time_max > UNACKNOWLEDGED_TIME_MAX {
                        return Err(PoolSpecError::SessionTime(value.to_owned()));
                    }
                }
                Some(("session-idle", value)) => sessions.idle_max = time(option, value)?.min(UNACKNOWLEDGED_TIME_MAX),
                Some(("users", value)) => _ = users.get_or_insert_default().insert(user(value)?),
                Some(("programs", value)) => programs.count = program_count(value)?,
                Some(("program-time-max", value)) => {
                    programs.time_max = time(option, value)?;
                    if programs.time_max > UNACKNOWLEDGED_TIME_MAX {
                        return Err(PoolSpecError::ProgramTime(value.to_owned()));
                    }
                }
                Some(("program-isolation", value)) => {
                    let wrong = |()| PoolSpecError::ProgramIsolation(value.to_owned());
                    programs.isolation = value.parse().map_err(wrong)?;
                }
                Some(("program-memory", value)) => {
                    let wrong = || PoolSpecError::ProgramMemory(value.to_owned());
                    programs.memory = ProgramLimit::memory(value).ok_or_else(wrong)?;
                }
                Some(("program-pids", value)) => {
                    let wrong = || PoolSpecError::ProgramPids(value.to_owned());
                    programs.pids = ProgramLimit::pids(value).ok_or_else(wrong)?;
                }
                None if option == "affinity" => affinity = true,
                None if option == "program-network" => programs.network = true,
                // This option is another name in `users=NAME,NAME`.
                None if let Some(users) = &mut users => _ = users.insert(user(option)?),
                _ => return Err(PoolSpecError::Option(option.to_owned())),
            }
        }
        for (name, allowance) in [("time", times.run), ("queue", times.queue)] {
            if allowance.default.zip(allowance.max).is_some_and(|(default, max)| default > max) {
                return Err(PoolSpecError::Default(name));
            }
        }
        if sessions.count > 0 && allow != Allow::Source {
            return Err(PoolSpecError::SessionsNeedSource);
        }
        if programs.count > 0 && allow != Allow::Source {
            return Err(PoolSpecError::ProgramsNeedSource);
        }
        Ok(Self { name, guarantee, allow, times, affinity, users, sessions, programs, executors })
    }
}

/// Checks that each pool is given once, and that the guarantees do not exceed a device's memory.
pub fn check(pools: &[PoolSpec]) -> Result<(), PoolsError> {
    for (index, pool) in pools.iter().enumerate() {
        if pools[..index].iter().any(|other| other.name == pool.name) {
            return Err(PoolsError::Twice(pool.name.clone()));
        }
    }
    let memory: u32 = pools.iter().map(|pool| pool.guarantee.memory_permille).sum();
    if memory > PERMILLE { Err(PoolsError::Memory(memory)) } else { Ok(()) }
}

fn weight(value: &str) -> Result<u32, PoolSpecError> {
    value.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight)).ok_or(PoolSpecError::Weight(value.to_owned()))
}

fn permille(value: &str) -> Result<u32, PoolSpecError> {
    let percent = value.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let permille = percent.map(|percent| (percent * 10.0).round()).filter(|permille| (1.0..=1000.0).contains(permille));
    permille.map(|permille| permille as u32).ok_or(PoolSpecError::Memory(value.to_owned()))
}

fn executor_count(value: &str) -> Result<u32, PoolSpecError> {
    let count = value.parse().ok().filter(|count| (1..=EXECUTORS_MAX).contains(count));
    count.ok_or_else(|| PoolSpecError::Executors(value.to_owned()))
}

fn session_count(value: &str) -> Result<u16, PoolSpecError> {
    value.parse().ok().filter(|count| *count <= SESSIONS_MAX).ok_or(PoolSpecError::Sessions(value.to_owned()))
}

fn program_count(value: &str) -> Result<u16, PoolSpecError> {
    value.parse().ok().filter(|count| *count <= PROGRAMS_MAX).ok_or_else(|| PoolSpecError::Programs(value.to_owned()))
}

fn user(name: &str) -> Result<String, PoolSpecError> {
    if name.is_empty() { Err(PoolSpecError::Users) } else { Ok(name.to_owned()) }
}

fn time(option: &str, value: &str) -> Result<Duration, PoolSpecError> {
    let time = humantime::parse_duration(value).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| PoolSpecError::Time(option.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Isolation;

    fn spec(text: &str) -> Result<PoolSpec, PoolSpecError> {
        text.parse()
    }

    #[test]
    fn a_name_alone_is_a_pool_of_weight_one_without_a_budget() {
        let pool = spec("default").unwrap();
        assert_eq!((pool.name.to_string().as_str(), pool.guarantee), ("default", PoolGuarantee::default()));
    }

    #[test]
    fn weight_and_memory_are_read_in_any_order() {
        let guarantee = PoolGuarantee { weight: 3, memory_permille: 500 };
        assert_eq!(spec("team-a:weight=3,memory=50%").unwrap().guarantee, guarantee);
        assert_eq!(spec("team-a:memory=50%,weight=3").unwrap().guarantee, guarantee);
        assert_eq!(spec("team-a:weight=3,allow=signed").unwrap().allow, Allow::Signed);
        assert_eq!(spec("team-a").unwrap().allow, Allow::Source);
        assert_eq!(["team-a:weight=3,affinity", "team-a"].map(|text| spec(text).unwrap().affinity), [true, false]);
        assert_eq!(spec("team-a:memory=12.5%").unwrap().guarantee, PoolGuarantee { weight: 1, memory_permille: 125 });
    }

    #[test]
    fn users_are_names_up_to_the_next_setting() {
        let users = |text: &str| spec(text).unwrap().users.map(|users| users.into_iter().collect::<Vec<_>>().join(" "));
        assert_eq!(users("a"), None);
        assert_eq!(users("a:users=bert,anna,affinity,weight=2").as_deref(), Some("anna bert"));
        assert_eq!(users("a:weight=2,users=anna,users=affinity").as_deref(), Some("affinity anna"));
        assert!(spec("a:users=bert,affinity").unwrap().affinity);
    }

    #[test]
    fn a_pool_has_one_executor_unless_it_asks_for_more() {
        let executors = |text: &str| spec(text).unwrap().executors;
        assert_eq!([executors("a"), executors("a:executors=1"), executors("a:weight=2,executors=8")], [1, 1, 8]);
    }

    #[test]
    fn times_are_read_each_for_itself() {
        let times = spec("a:time-default=5m,time-max=1h,queue-max=1d").unwrap().times;
        let seconds = |number| Some(Duration::from_secs(number));
        assert_eq!((times.run.default, times.run.max), (seconds(300), seconds(3600)));
        assert_eq!((times.queue.default, times.queue.max), (None, seconds(86_400)));
    }

    #[test]
    fn a_pool_takes_sessions_if_it_says_so() {
        let sessions = |text: &str| spec(text).unwrap().sessions;
        assert_eq!(sessions("a"), SessionAllowance::default());
        let all = sessions("a:sessions=4,session-memory=25%,session-time-max=1h,session-idle=1m");
        let (time_max, idle_max) = (Duration::from_secs(3600), Duration::from_secs(60));
        assert_eq!(all, SessionAllowance { count: 4, memory_permille: 250, time_max, idle_max });
    }

    #[test]
    fn a_pool_runs_host_programs_if_it_says_so() {
        let programs = |text: &str| spec(text).unwrap().programs;
        assert_eq!(programs("a"), ProgramAllowance::default());
        let all = programs(
            "a:programs=2,program-time-max=1h,program-network,program-isolation=podman,program-memory=2GiB,program-pids=off",
        );
        let expected = ProgramAllowance {
            count: 2,
            time_max: Duration::from_secs(3600),
            network: true,
            isolation: Isolation::Podman,
            memory: ProgramLimit::At(2 << 30),
            pids: ProgramLimit::Off,
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn an_invalid_pool_setting_is_refused_with_the_expected_form() {
        for (text, part) in [
            ("a:weight=0", "from 1 to 1000"),
            ("a:weight=-1", "whole number"),
            ("a:memory=50", "memory=50%"),
            ("a:memory=101%", "0.1% to 100%"),
            ("a:memory=NaN%", "0.1% to 100%"),
            (
                "a:colour=red",
                "weight=N, memory=N%, allow=catalog|signed|source, users=NAME,NAME, affinity, executors=N, time-default",
            ),
            (
                "a:",
                "weight=N, memory=N%, allow=catalog|signed|source, users=NAME,NAME, affinity, executors=N, time-default",
            ),
            ("a:affinity=8", "affinity=8"),
            ("a:users=", "names of broker users"),
            ("a:users=anna,", "names of broker users"),
            ("a:time-max=long", "time-max=long: expected a time"),
            ("a:queue-max=0s", "queue-max=0s: expected a time"),
            ("a:time-max=1m,time-default=2m", "time-default is longer than time-max"),
            ("a:allow=all", "catalog, signed or source"),
            ("a:executors=0", "executors=0: expected a whole number from 1 to 8"),
            ("a:executors=9", "executors=9: expected a whole number from 1 to 8"),
            ("a:executors=two", "executors=two: expected a whole number"),
            ("a:executors", "\"executors\" is not a pool setting"),
            ("a:sessions=257", "from 0 to 256"),
            ("a:sessions=1,allow=signed", "needs allow=source"),
            ("a:session-memory=0%", "session-memory=50%"),
            ("a:session-time-max=8d", "at most 7d"),
            ("a:programs=257", "from 0 to 256"),
            ("a:programs=1,allow=catalog", "needs allow=source"),
            ("a:program-time-max=8d", "at most 7d"),
            ("a:program-isolation=docker", "expected environment or podman"),
            ("a:program-memory=1MiB", "at least 16MiB"),
            ("a:program-pids=3", "from 16 to 4194304, or off"),
            ("A B", "pool"),
        ] {
            let error = spec(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn pools_are_unique_and_their_memory_fits_the_device() {
        let pools = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<PoolSpec>>();
        assert_eq!(check(&pools(&["a:memory=60%", "b:memory=40%"])), Ok(()));
        assert_eq!(check(&pools(&["a:memory=60%", "b:memory=40.1%"])), Err(PoolsError::Memory(1001)));
        assert!(matches!(check(&pools(&["a", "b", "a:weight=2"])), Err(PoolsError::Twice(_))));
    }
}
