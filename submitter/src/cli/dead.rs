//! `gpufleet dead`: look at jobs that nobody will try again, and decide about them.

use clap::{Args, Subcommand};
use gpufleet::{
    DeadBox, DeadError, Fleet, LETTERS_MAX,
    schema::{TooLarge, bounds::LABELS_MAX},
};

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    json,
    options::{BrokerOptions, Format, ProducerOptions},
    output,
    waiting::{self, Spinner},
};

mod acting;
mod choice;
mod rendering;

use choice::Wanted;

/// Jobs that nobody will try again: list them, look at them, submit them again, throw them away
///
/// They are kept in a queue on the broker with the reason. While one command looks at them, another finds fewer.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the dead, the oldest first
    List(ListOptions),
    /// Tell all about one
    Show(ShowOptions),
    /// Submit again, as a new job with the label replay-of=ID; the old one stays dead in the history
    Replay(ReplayOptions),
    /// Throw away, for good
    Drop(DropOptions),
}

#[derive(Debug, Args)]
#[command(after_long_help = json::DEAD_LIST)]
struct ListOptions {
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    broker: BrokerOptions,
}

#[derive(Debug, Args)]
#[command(after_long_help = json::DEAD_SHOW)]
struct ShowOptions {
    /// The job's or the message's id, or enough of its beginning
    #[arg(value_parser = choice::id)]
    id: String,
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    broker: BrokerOptions,
}

#[derive(Debug, Args)]
pub struct ReplayOptions {
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    producer: ProducerOptions,
}

#[derive(Debug, Args)]
struct DropOptions {
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// Which of the dead.
#[derive(Debug, Args)]
struct ChoiceOptions {
    /// Ids of jobs or messages, or enough of their beginnings. A whole id means all letters about it
    #[arg(value_name = "ID", required_unless_present = "all", value_parser = choice::id)]
    ids: Vec<String>,
    /// All that are there when the command starts
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

const LOOKING: &str = "nothing is changed";
const ACTING: &str = "what was not told is as it was, except perhaps the letter that was under way";

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        Command::List(options) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder());
            with_dead(fleet, LOOKING, async |dead| list(dead, options).await).await
        }
        Command::Show(options) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder());
            with_dead(fleet, LOOKING, async |dead| show(dead, options).await).await
        }
        Command::Replay(options) => replay(options).await,
        Command::Drop(options) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder());
            with_dead(fleet, ACTING, async |dead| acting::discard(dead, &options.choice).await).await
        }
    }
}

/// Also `gpufleet retry`.
pub async fn replay(options: &ReplayOptions) -> Result<Exit, Complaint> {
    let fleet = connection::producer(&options.producer, Fleet::builder());
    with_dead(fleet, ACTING, async |dead| acting::replay(dead, &options.choice).await).await
}

async fn with_dead(
    fleet: impl Future<Output = Result<Fleet, Complaint>>,
    when_interrupted: &str,
    act: impl AsyncFnOnce(&mut DeadBox) -> Result<Exit, Complaint>,
) -> Result<Exit, Complaint> {
    let work = Box::pin(async {
        let fleet = fleet.await?;
        let mut dead = fleet.dead().await.map_err(|error| complaint(&error))?;
        let outcome = act(&mut dead).await;
        dead.give_back().await;
        fleet.close().await;
        outcome
    });
    tokio::select! {
        outcome = work => outcome,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, format!("interrupted: {when_interrupted}"))),
    }
}

/// What came before a failure is shown all the same.
async fn list(dead: &mut DeadBox, options: &ListOptions) -> Result<Exit, Complaint> {
    let read = Spinner::new("reading the dead").around(read(dead)).await;
    match options.output {
        Format::Json => output::emit_json(&dead.letters().map(rendering::to_json).collect::<Vec<_>>())?,
        Format::Table if dead.letters().next().is_none() => {
            if read.is_ok() {
                output::note(none(dead));
            }
        }
        Format::Table => {
            output::emit(&rendering::table(dead.letters(), chrono::Utc::now(), output::stdout_width()))?;
        }
    }
    read.map_err(|error| complaint(&error))?;
    if dead.unseen() > 0 {
        output::note(&format!("there are {} more; these are the oldest {LETTERS_MAX}", dead.unseen()));
    }
    Ok(Exit::Success)
}

/// What it means that no letter came.
fn none(dead: &DeadBox) -> &'static str {
    match dead.has_company() {
        true => "no dead letters, but another `gpufleet dead` may have some in hand; try again in a moment",
        false => "no dead letters",
    }
}

async fn read(dead: &mut DeadBox) -> Result<(), DeadError> {
    while let Some(index) = dead.next().await? {
        dead.forget_body(index);
    }
    Ok(())
}

async fn show(dead: &mut DeadBox, options: &ShowOptions) -> Result<Exit, Complaint> {
    let found = find(dead, std::slice::from_ref(&options.id)).await?;
    let index = found[0];
    let letter = dead.letter(index).expect("it was found just now");
    match options.output {
        Format::Json => output::emit_json(&rendering::with_body(letter, dead.body(index)))?,
        Format::Table => output::emit(&rendering::describe(letter))?,
    }
    if let others @ 1.. = found.len() - 1 {
        output::note(&format!("this is the oldest letter about it; there are {others} more"));
    }
    Ok(Exit::Success)
}

/// The letters that are meant, by their order. All are found before anything is done.
async fn find(dead: &mut DeadBox, ids: &[String]) -> Result<Vec<usize>, Complaint> {
    let mut wanted: Vec<Wanted> = ids.iter().map(|id| Wanted::new(id)).collect();
    let reading = Spinner::new("reading the dead").around(look_for(dead, &mut wanted)).await;
    reading.map_err(|error| complaint(&error))?;
    let mut found = Vec::new();
    for wanted in &wanted {
        found.extend_from_slice(wanted.found(dead.unseen())?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

async fn look_for(dead: &mut DeadBox, wanted: &mut [Wanted]) -> Result<(), DeadError> {
    while let Some(index) = dead.next().await? {
        let letter = dead.letter(index).expect("it is in hand");
        let mut is_meant = false;
        for wanted in &mut *wanted {
            is_meant |= wanted.offer(index, letter);
        }
        if !is_meant {
            dead.forget_body(index);
        }
    }
    Ok(())
}

fn complaint(error: &DeadError) -> Complaint {
    let told = |exit| Complaint::new(exit, connection::sentence(&chain(error)));
    match error {
        DeadError::Publish(_) => connection::publish_complaint(&chain(error)),
        DeadError::NoDeadQueue => {
            Complaint::new(Exit::Broker, chain(error)).hint("start a worker on this vhost first: gpufleet-worker run")
        }
        DeadError::NoQueue { pool } => Complaint::new(Exit::Broker, chain(error))
            .hint(format!("start a worker that serves the pool: gpufleet-worker run --pool {pool}")),
        DeadError::Silent { .. } => {
            told(Exit::Broker).hint("another `gpufleet dead` may hold them; try again in a moment")
        }
        DeadError::Interrupted { .. } | DeadError::Stale | DeadError::Gone | DeadError::Settle(_) => {
            told(Exit::Broker).hint("try again; `gpufleet dead list` shows what is there")
        }
        DeadError::StillThere { .. } => {
            told(Exit::Broker).hint("throw it away: replayed again, it becomes another job")
        }
        DeadError::Unknown { .. } => {
            told(Exit::Broker).hint("`gpufleet show` tells whether the new job is there; if so, throw the letter away")
        }
        DeadError::NoTask { .. } => {
            told(Exit::BadInput).hint("only tasks can be submitted again; `gpufleet dead drop` throws it away")
        }
        DeadError::Cut { .. } | DeadError::TooLarge { .. } => {
            told(Exit::BadInput).hint(format!("the job has to be submitted anew, otherwise: {}", TooLarge::ADVICE))
        }
        DeadError::LabelsFull { .. } => told(Exit::BadInput).hint(format!(
            "a job has at most {LABELS_MAX} labels; `gpufleet dead show -o json` prints it, to be submitted with fewer"
        )),
        DeadError::NotKept | DeadError::Invalid { .. } => told(Exit::BadInput),
        DeadError::Queue(_) => told(Exit::Broker),
    }
}
