//! `gpufleet permissions`: prints the `rabbitmqctl` commands that grant a broker user exactly what a role needs.
//!
//! RabbitMQ has three permissions on the names of queues and exchanges (configure, write, read), and two more on the routing keys of topic
//! exchanges. Binding a queue requires write on the queue and read on the exchange. A queue with a dead-letter exchange requires read on the
//! queue and write on that exchange. RabbitMQ searches names for the patterns, so this module anchors each of them.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, ValueEnum};
use gpufleet::schema::{
    ClientName, PoolName,
    affinity::SLOTS,
    topology::{
        CANCELLATIONS_QUEUE, CONTROL_CLIENT, CONTROL_OPERATOR, CONTROL_QUEUE, CONTROL_WORKER, DEAD, DROPPED_EXCHANGE,
        EVENTS_ACTION_KEY, EVENTS_CLIENT, EVENTS_WORKER, FORWARDED, LEDGER_QUEUE, PROGRESS, REPLIES, RETRY_LADDER,
        TASKS, TASKS_OPERATOR, UNCLAIMED_EXCHANGE, WORKERS,
    },
};

use super::{complaint::Complaint, exit::Exit, output};

/// Print the rabbitmqctl commands that grant a broker user exactly what a role needs
///
/// The command itself changes nothing. The user must exist (rabbitmqctl add_user NAME). The printed commands replace all permissions of
/// the user in the vhost; for a user with two roles, give both.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Role of the user. Repeatable, for a user with several roles
    #[arg(long, value_enum, value_name = "ROLE", required = true)]
    role: Vec<Role>,
    /// Pool that a producer submits to or a worker serves. Repeatable. An operator without a pool may replay dead-lettered jobs into any pool
    #[arg(long, value_name = "POOL")]
    pool: Vec<PoolName>,
    /// Let the producer open sessions in its pools (gpufleet run), which run any code on their workers
    #[arg(long)]
    sessions: bool,
    /// Let the producer run host programs in its pools (gpufleet run --on-worker), which run any code on their workers' machines
    #[arg(long)]
    programs: bool,
    /// Name of the broker user [default: gpufleet-ROLE]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Vhost of the broker
    #[arg(long, value_name = "VHOST", default_value = "/")]
    vhost: String,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet permissions --role producer --pool team-a --user anna
  gpufleet permissions --role producer --pool team-a --user bert --sessions
  gpufleet permissions --role producer --pool team-a --user carla --sessions --programs
  gpufleet permissions --role worker --pool default --pool team-a";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Role {
    /// Submits jobs to its pools, reads replies to its own clients, cancels its own jobs
    Producer,
    /// Serves its pools: declares queues, runs jobs, reports outcomes
    Worker,
    /// Reads all events into the ledger (gpufleet-ledger record)
    Recorder,
    /// Cancels any job, drains workers, handles dead-lettered jobs
    Operator,
}

/// Patterns without their anchors.
#[derive(Debug, Default)]
struct Rights {
    configure: BTreeSet<String>,
    write: BTreeSet<String>,
    read: BTreeSet<String>,
    /// By exchange: routing keys to publish with, and to bind with.
    topics: BTreeMap<&'static str, Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    write: BTreeSet<String>,
    read: BTreeSet<String>,
}

/// The prefix of all queue and exchange names.
const PREFIX: &str = "gpufleet\\.v1\\.";
/// Matches the name of a pool.
const ANY_POOL: &str = "[A-Za-z0-9_-]+";
const PRIORITIES: &str = "(high|normal|low)";
/// Matches the name of a device class.
const DEVICE_CLASS: &str = "[0-9a-f]{16}";
/// Matches an id.
const ID: &str = "[0-9a-f-]{36}";
/// Matches the part of a client's name after its last dash.
const CLIENT_WORD: &str = "[A-Za-z0-9_]+";

pub fn run(options: &Options) -> Result<Exit, Complaint> {
    output::emit(&commands(options)?)?;
    Ok(Exit::Success)
}

fn commands(options: &Options) -> Result<String, Complaint> {
    let roles: BTreeSet<Role> = options.role.iter().copied().collect();
    let names: Vec<String> = roles.iter().map(|role| role.name()).collect();
    let user = options.user.clone().unwrap_or_else(|| format!("gpufleet-{}", names.join("-")));
    // A line that a shell reads as a comment must not end within a name.
    if [&user, &options.vhost].iter().any(|name| name.contains(char::is_control)) {
        return Err(Complaint::usage("the name of a user or vhost can't contain control characters"));
    }
    if options.sessions && !roles.contains(&Role::Producer) {
        return Err(
            Complaint::usage("--sessions is for producers").hint("add --role producer, or leave --sessions out")
        );
    }
    if options.programs && !roles.contains(&Role::Producer) {
        return Err(
            Complaint::usage("--programs is for producers").hint("add --role producer, or leave --programs out")
        );
    }
    let mut rights = Rights::default();
    for role in &roles {
        rights.add(*role, &options.pool, &user)?;
    }
    if options.sessions {
        rights.add_sessions(&some(&options.pool, Role::Producer)?);
    }
    if options.programs {
        rights.add_programs(&some(&options.pool, Role::Producer)?);
    }
    let mut text = format!("# User {user} in vhost {}: {}.\n", options.vhost, names.join(" and "));
    for role in &roles {
        text.push_str(&format!("# {}\n", role.note(&user)));
    }
    let (vhost, user) = (quoted(&options.vhost), quoted(&user));
    let [configure, write, read] = [&rights.configure, &rights.write, &rights.read].map(|names| pattern(PREFIX, names));
    text.push_str(&format!("rabbitmqctl set_permissions --vhost {vhost} {user} {configure} {write} {read}\n"));
    text.push_str(&format!("rabbitmqctl clear_topic_permissions --vhost {vhost} {user}\n"));
    for (exchange, keys) in &rights.topics {
        let [write, read] = [&keys.write, &keys.read].map(|keys| pattern("", keys));
        let exchange = quoted(exchange);
        text.push_str(&format!("rabbitmqctl set_topic_permissions --vhost {vhost} {user} {exchange} {write} {read}\n"));
    }
    Ok(text)
}

impl Role {
    fn name(self) -> String {
        self.to_possible_value().expect("no role is hidden").get_name().to_owned()
    }

    fn note(self, user: &str) -> String {
        match self {
            Self::Producer => format!(
                "A producer submits to its pools, reads replies to clients named {user}-WORD (WORD without dashes), and cancels its own jobs."
            ),
            Self::Worker => {
                "A worker declares queues and exchanges, runs the jobs of its pools, and reports outcomes. \
                             It may reply to any client."
                    .to_owned()
            }
            Self::Recorder => "The recorder reads all events, and dead-letters those that it can't record.".to_owned(),
            Self::Operator => {
                "An operator cancels any job, drains workers, and lists, replays and discards dead-lettered jobs."
                    .to_owned()
            }
        }
    }
}

impl Rights {
    fn add(&mut self, role: Role, pools: &[PoolName], user: &str) -> Result<(), Complaint> {
        match role {
            Role::Producer => self.add_producer(&some(pools, role)?, user),
            Role::Worker => {
                self.add_worker(&some(pools, role)?);
                Ok(())
            }
            Role::Recorder => {
                self.add_recorder();
                Ok(())
            }
            Role::Operator => {
                self.add_operator(&some(pools, role).unwrap_or_else(|_| ANY_POOL.to_owned()), user);
                Ok(())
            }
        }
    }

    fn add_producer(&mut self, pools: &str, user: &str) -> Result<(), Complaint> {
        let Some(client) = clients_of(user) else {
            return Err(Complaint::usage(format!("the name {user:?} can't be the prefix of a producer's client names")).hint(
                "use at most 83 letters, digits, '-' and '_'; the permissions of a producer cover the clients whose names begin with its own",
            ));
        };
        let queue = below(REPLIES, &client);
        self.configure.insert(queue.clone());
        self.write.extend([TASKS, EVENTS_CLIENT, CONTROL_CLIENT].map(escaped));
        self.write.insert(queue.clone());
        self.read.extend([escaped(REPLIES), queue]);
        self.add_progress(&client);
        self.keys(TASKS).write.insert(keys_of(pools));
        self.keys(EVENTS_CLIENT).write.insert(submission_keys_of(pools));
        self.keys(PROGRESS).read.extend([format!("{pools}\\.{client}\\.\\*"), format!("{pools}\\.\\*\\.{ID}")]);
        self.keys(REPLIES).read.insert(client);
        Ok(())
    }

    /// Lets a user have queues for the progress of jobs.
    fn add_progress(&mut self, client: &str) {
        let queue = below(PROGRESS, &format!("{client}\\.{ID}"));
        for names in [&mut self.configure, &mut self.write, &mut self.read] {
            names.insert(queue.clone());
        }
        self.read.insert(escaped(PROGRESS));
    }

    /// Lets a producer open sessions. It is a right of its own, because a session runs any code.
    fn add_sessions(&mut self, pools: &str) {
        self.keys(TASKS).write.insert(session_keys_of(pools));
    }

    /// Lets a producer run host programs. It is a right of its own, because a host program runs any code on the worker's machine.
    fn add_programs(&mut self, pools: &str) {
        self.keys(TASKS).write.insert(program_keys_of(pools));
    }

    fn add_worker(&mut self, pools: &str) {
        let queues = [
            below(TASKS, &keys_of(pools)),
            below(TASKS, &session_keys_of(pools)),
            below(TASKS, &program_keys_of(pools)),
            below(FORWARDED, &forwarded_keys_of(pools)),
        ];
        let ladder = RETRY_LADDER.map(|rung| escaped(rung.name));
        let streams = [CONTROL_QUEUE, CANCELLATIONS_QUEUE];
        let shared = [UNCLAIMED_EXCHANGE, DROPPED_EXCHANGE, DEAD, LEDGER_QUEUE, CONTROL_WORKER];
        let exchanges = [TASKS, FORWARDED, REPLIES, EVENTS_WORKER];
        let bound = [EVENTS_CLIENT, CONTROL_OPERATOR, CONTROL_CLIENT, TASKS_OPERATOR];
        for names in [&mut self.configure, &mut self.write, &mut self.read] {
            names.extend(shared.map(escaped).into_iter().chain(exchanges.map(escaped)).chain(ladder.clone()));
            names.extend(streams.map(escaped));
            names.extend(queues.clone());
        }
        for names in [&mut self.configure, &mut self.read] {
            names.extend(bound.map(escaped));
        }
        self.configure.insert(below(WORKERS, ".+"));
        self.configure.insert(escaped(PROGRESS));
        self.write.insert(escaped(PROGRESS));
        self.keys(PROGRESS).write.insert(format!("{pools}\\.{ANY_POOL}\\.{ID}"));
        let tasks = self.keys(TASKS);
        let keys = [keys_of(pools), session_keys_of(pools), program_keys_of(pools)];
        tasks.write.extend(keys.clone());
        tasks.read.extend(keys);
        self.keys(TASKS_OPERATOR).read.insert(keys_of(pools));
        let forwarded = self.keys(FORWARDED);
        forwarded.write.insert(forwarded_keys_of(pools));
        forwarded.read.insert(forwarded_keys_of(pools));
        self.keys(REPLIES).write.insert(ANY_POOL.to_owned());
    }

    fn add_recorder(&mut self) {
        let owned = [DEAD, DROPPED_EXCHANGE, LEDGER_QUEUE];
        for names in [&mut self.configure, &mut self.write, &mut self.read] {
            names.extend(owned.map(escaped));
        }
        for names in [&mut self.configure, &mut self.read] {
            names.extend([EVENTS_CLIENT, EVENTS_WORKER].map(escaped));
        }
    }

    fn add_operator(&mut self, pools: &str, user: &str) {
        // Without clients of its own, the user can't follow jobs while they run.
        clients_of(user).iter().for_each(|client| self.add_progress(client));
        self.keys(PROGRESS).read.insert(format!("{pools}\\.\\*\\.(\\*|{ID})"));
        self.write.extend([CONTROL_OPERATOR, TASKS_OPERATOR, EVENTS_CLIENT].map(escaped));
        self.read.insert(escaped(DEAD));
        self.keys(TASKS_OPERATOR).write.insert(keys_of(pools));
        self.keys(EVENTS_CLIENT).write.extend([submission_keys_of(pools), EVENTS_ACTION_KEY.to_owned()]);
    }

    fn keys(&mut self, exchange: &'static str) -> &mut Keys {
        self.topics.entry(exchange).or_default()
    }
}

/// Matches the names of a user's clients; `None` if the user's name can't be their prefix.
fn clients_of(user: &str) -> Option<String> {
    // As a fresh client name has it.
    let is_prefix = ClientName::fresh(user).as_str().starts_with(&format!("{user}-"));
    is_prefix.then(|| format!("{user}-{CLIENT_WORD}"))
}

fn some(pools: &[PoolName], role: Role) -> Result<String, Complaint> {
    let names: Vec<&str> = pools.iter().map(PoolName::as_str).collect();
    match names.as_slice() {
        [] => Err(Complaint::usage(format!("a {} needs at least one pool", role.name()))
            .hint("add --pool POOL; it is repeatable")),
        [only] => Ok((*only).to_owned()),
        many => Ok(format!("({})", many.join("|"))),
    }
}

/// The routing keys of the pools' tasks, with and without an affinity slot.
fn keys_of(pools: &str) -> String {
    format!("{pools}(\\.[0-{}])?\\.{PRIORITIES}", SLOTS - 1)
}

/// The routing key of sessions: [`session_key`](gpufleet::schema::topology::session_key).
fn session_keys_of(pools: &str) -> String {
    format!("{pools}\\.session")
}

/// The routing key of host programs: [`program_key`](gpufleet::schema::topology::program_key).
fn program_keys_of(pools: &str) -> String {
    format!("{pools}\\.program")
}

/// The routing keys of submissions to the pools.
fn submission_keys_of(pools: &str) -> String {
    format!("submitted\\.{pools}")
}

fn forwarded_keys_of(pools: &str) -> String {
    format!("{pools}\\.{DEVICE_CLASS}\\.{PRIORITIES}")
}

fn below(name: &str, rest: &str) -> String {
    format!("{}\\.{rest}", escaped(name))
}

fn escaped(name: &str) -> String {
    name.replace('.', "\\.")
}

/// Matches these, which all begin with the prefix, and nothing else; the empty text where there are none.
fn pattern(prefix: &str, alternatives: &BTreeSet<String>) -> String {
    let rest: Vec<&str> = alternatives.iter().filter_map(|name| name.strip_prefix(prefix)).collect();
    quoted(&match rest.as_slice() {
        [] => "^$".to_owned(),
        [only] => format!("^{prefix}{only}$"),
        many => format!("^{prefix}({})$", many.join("|")),
    })
}

/// The text as one word of a POSIX shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(roles: &[Role], pools: &[&str], user: Option<&str>) -> Result<String, Complaint> {
        let pool = pools.iter().map(|pool| pool.parse().unwrap()).collect();
        let user = user.map(str::to_owned);
        commands(&Options { role: roles.to_vec(), pool, sessions: false, programs: false, user, vhost: "/".to_owned() })
    }

    fn with_sessions(role: Role) -> Result<String, Complaint> {
        let pool = vec!["team-a".parse().unwrap()];
        commands(&Options {
            role: vec![role],
            pool,
            sessions: true,
            programs: false,
            user: None,
            vhost: "/".to_owned(),
        })
    }

    #[test]
    fn the_commands_of_a_producer() {
        insta::assert_snapshot!(printed(&[Role::Producer], &["team-a"], Some("anna")).unwrap());
    }

    #[test]
    fn only_a_producer_who_may_open_sessions_may_use_their_key() {
        let key = "'gpufleet.v1.tasks' '^(team-a(\\.[0-7])?\\.(high|normal|low)|team-a\\.session)$' '^$'";
        assert!(with_sessions(Role::Producer).unwrap().contains(key));
        let without = printed(&[Role::Producer], &["team-a"], None).unwrap();
        assert!(!without.contains("session"), "{without}");
        assert_eq!(with_sessions(Role::Worker).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn only_a_producer_who_may_run_host_programs_may_use_their_key() {
        let with_programs = |role| {
            let pool = vec!["team-a".parse().unwrap()];
            let options =
                Options { role: vec![role], pool, sessions: false, programs: true, user: None, vhost: "/".to_owned() };
            commands(&options)
        };
        let key = "'gpufleet.v1.tasks' '^(team-a(\\.[0-7])?\\.(high|normal|low)|team-a\\.program)$' '^$'";
        let printed = with_programs(Role::Producer).unwrap();
        assert!(printed.contains(key) && !printed.contains("session"), "{printed}");
        assert!(!with_sessions(Role::Producer).unwrap().contains("program"));
        assert_eq!(with_programs(Role::Recorder).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn the_commands_of_a_worker() {
        insta::assert_snapshot!(printed(&[Role::Worker], &["team-a", "default"], None).unwrap());
    }

    #[test]
    fn the_commands_of_a_recorder() {
        insta::assert_snapshot!(printed(&[Role::Recorder], &[], None).unwrap());
    }

    #[test]
    fn the_commands_of_an_operator_who_submits_too() {
        let printed = printed(&[Role::Operator, Role::Producer], &["team-a"], Some("olga")).unwrap();
        insta::assert_snapshot!(printed);
    }

    #[test]
    fn no_role_writes_to_the_default_exchange_or_to_the_exchange_of_another_role() {
        for (role, foreign) in [
            (Role::Producer, [EVENTS_WORKER, CONTROL_OPERATOR, CONTROL_WORKER, TASKS_OPERATOR]),
            (Role::Worker, [EVENTS_CLIENT, CONTROL_OPERATOR, CONTROL_CLIENT, TASKS_OPERATOR]),
            (Role::Recorder, [EVENTS_WORKER, CONTROL_OPERATOR, TASKS, TASKS_OPERATOR]),
            (Role::Operator, [EVENTS_WORKER, CONTROL_WORKER, REPLIES, TASKS]),
        ] {
            let mut rights = Rights::default();
            rights.add(role, &[PoolName::default()], "anna").unwrap();
            for exchange in foreign {
                assert!(!rights.write.contains(&escaped(exchange)), "{role:?} {exchange}");
            }
            assert!(!rights.write.iter().any(|name| name.contains("amq") || name.is_empty()), "{role:?}");
        }
    }

    #[test]
    fn names_that_can_not_be_confined_are_refused_and_quotes_survive_a_shell() {
        let no_pool = printed(&[Role::Producer], &[], None).unwrap_err();
        assert_eq!((no_pool.exit, no_pool.message.as_str()), (Exit::Usage, "a producer needs at least one pool"));
        let stranger = printed(&[Role::Producer], &["a"], Some("anna@example.org")).unwrap_err();
        assert_eq!(stranger.exit, Exit::Usage);
        assert_eq!(printed(&[Role::Operator], &[], Some("o\nreboot")).unwrap_err().exit, Exit::Usage);
        let operator = printed(&[Role::Operator], &[], Some("o'neill")).unwrap();
        assert!(operator.contains(r"--vhost '/' 'o'\''neill' '^$'"), "{operator}");
    }
}
