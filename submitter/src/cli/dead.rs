//! `gpufleet dead`: look at jobs that nobody will try again, and decide about them.

use clap::{Args, Subcommand};
use gpufleet::{DeadBox, DeadError, DeadLetter, Fleet, schema::Encoding};
use serde_json::{Value, json};

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    options::{BrokerOptions, Format},
    output, quantity,
    table::{Column, fit},
    waiting::{self, Spinner},
};

/// Jobs that nobody will try again: list them, look at them, submit them again, throw them away
///
/// They are kept in a queue on the broker with the reason. While one command looks at them, another finds none.
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
    Replay(ChoiceOptions),
    /// Throw away, for good
    Drop(ChoiceOptions),
}

#[derive(Debug, Args)]
struct ListOptions {
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    broker: BrokerOptions,
}

#[derive(Debug, Args)]
struct ShowOptions {
    /// The job's or the message's id, or enough of its beginning
    id: String,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// Which of the dead.
#[derive(Debug, Args)]
pub struct ChoiceOptions {
    /// Ids of jobs or messages, or enough of their beginnings
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// A JSON rendering of a task's arrays helps nobody beyond this.
const SHOWN_BYTES: usize = 64 << 10;

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        Command::List(options) => with_dead(&options.broker, async |dead| list(&dead, options.output)).await,
        Command::Show(options) => with_dead(&options.broker, async |dead| show(&dead, &options.id)).await,
        Command::Replay(options) => replay(options).await,
        Command::Drop(options) => with_dead(&options.broker, async |dead| discard(dead, options).await).await,
    }
}

/// Also `gpufleet retry`.
pub async fn replay(options: &ChoiceOptions) -> Result<Exit, Complaint> {
    with_dead(&options.broker, async |dead| replay_chosen(dead, options).await).await
}

async fn with_dead(
    broker: &BrokerOptions,
    act: impl AsyncFnOnce(DeadBox) -> Result<Exit, Complaint>,
) -> Result<Exit, Complaint> {
    let work = async {
        let fleet = connection::fleet(broker, Fleet::builder()).await?;
        let dead = Spinner::new("reading the dead").around(fleet.dead()).await.map_err(|error| complaint(&error))?;
        let outcome = act(dead).await;
        fleet.close().await;
        outcome
    };
    tokio::select! {
        outcome = work => outcome,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted: what was not told is as it was")),
    }
}

fn list(dead: &DeadBox, format: Format) -> Result<Exit, Complaint> {
    match format {
        Format::Json => output::emit_json(&dead.letters().map(to_json).collect::<Vec<_>>())?,
        Format::Table if dead.letters().len() == 0 => output::note("no dead letters"),
        Format::Table => output::emit(&table(dead.letters(), output::stdout_width()))?,
    }
    Ok(Exit::Success)
}

fn table<'a>(letters: impl Iterator<Item = &'a DeadLetter>, width: Option<usize>) -> String {
    const COLUMNS: [Column; 4] =
        [Column::Left("JOB"), Column::Left("FROM"), Column::Right("SIZE"), Column::Left("REASON")];
    let rows: Vec<Vec<String>> = letters
        .map(|letter| {
            let first_line = letter.reason.lines().next().unwrap_or_default();
            vec![
                name(letter),
                letter.origin.clone(),
                quantity::bytes(letter.bytes as u64),
                output::visible(first_line).into_owned(),
            ]
        })
        .collect();
    fit(&COLUMNS, &rows, width, &["SIZE", "FROM"])
}

fn name(letter: &DeadLetter) -> String {
    match letter.jobs.as_slice() {
        [] => letter.message_id.clone().unwrap_or_else(|| "unknown".to_owned()),
        [only] => only.to_string(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

fn to_json(letter: &DeadLetter) -> Value {
    json!({
        "jobs": letter.jobs,
        "message_id": letter.message_id,
        "reason": letter.reason,
        "origin": letter.origin,
        "type": letter.kind,
        "bytes": letter.bytes,
        "timestamp": letter.timestamp,
    })
}

fn show(dead: &DeadBox, id: &str) -> Result<Exit, Complaint> {
    let index = find(dead, id)?;
    let letter = dead.letters().nth(index).expect("the index was found just now");
    let mut shown = to_json(letter);
    if let Some((body, content_type)) = dead.body(index) {
        shown["body"] = readable(body, content_type);
    }
    output::emit_json(&shown)?;
    Ok(Exit::Success)
}

/// The body as JSON, where it is a task that a person could read.
fn readable(body: &[u8], content_type: Option<&str>) -> Value {
    let tasks = content_type
        .and_then(Encoding::of_content_type)
        .filter(|_| body.len() <= SHOWN_BYTES)
        .and_then(|encoding| encoding.decode_tasks(body).ok())
        .and_then(|tasks| serde_json::to_value(tasks.into_vec()).ok());
    tasks.unwrap_or_else(|| Value::String(format!("{} bytes, not shown", body.len())))
}

async fn replay_chosen(mut dead: DeadBox, options: &ChoiceOptions) -> Result<Exit, Complaint> {
    for index in chosen(&dead, options)? {
        let old = name(dead.letters().nth(index).expect("the index was found just now"));
        let jobs = dead.replay(index).await.map_err(|error| complaint(&error))?;
        let new: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let new = if new.is_empty() { "sent again as it was".to_owned() } else { new.join(" ") };
        output::emit(&format!("{old}  ->  {new}\n"))?;
    }
    Ok(Exit::Success)
}

async fn discard(mut dead: DeadBox, options: &ChoiceOptions) -> Result<Exit, Complaint> {
    for index in chosen(&dead, options)? {
        let old = name(dead.letters().nth(index).expect("the index was found just now"));
        dead.discard(index).await.map_err(|error| complaint(&error))?;
        output::emit(&format!("dropped {old}\n"))?;
    }
    Ok(Exit::Success)
}

/// All are found before anything is done.
fn chosen(dead: &DeadBox, options: &ChoiceOptions) -> Result<Vec<usize>, Complaint> {
    if options.all {
        return Ok((0..dead.letters().len()).collect());
    }
    let mut indices = options.ids.iter().map(|id| find(dead, id)).collect::<Result<Vec<_>, _>>()?;
    indices.sort_unstable();
    indices.dedup();
    Ok(indices)
}

fn find(dead: &DeadBox, id: &str) -> Result<usize, Complaint> {
    let is_meant = |letter: &DeadLetter| {
        letter.jobs.iter().any(|job| job.to_string().starts_with(id))
            || letter.message_id.as_deref().is_some_and(|message| message.starts_with(id))
    };
    let mut found = dead.letters().enumerate().filter(|(_, letter)| is_meant(letter)).map(|(index, _)| index);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (Some(_), Some(_)) => Err(Complaint::new(Exit::NotFound, format!("several of the dead begin with {id:?}"))
            .hint("give more of the id; `gpufleet dead list` lists them")),
        (None, _) => Err(Complaint::new(Exit::NotFound, format!("none of the dead is {id:?}"))
            .hint("`gpufleet dead list` lists them; `gpufleet show` tells what became of any other job")),
    }
}

fn complaint(error: &DeadError) -> Complaint {
    let exit = match error {
        DeadError::Publish(_) => return connection::publish_complaint(&chain(error)),
        DeadError::NoTask { .. } => Exit::BadInput,
        DeadError::Queue(_) | DeadError::Silent | DeadError::Settle(_) | DeadError::Gone => Exit::Broker,
    };
    Complaint::new(exit, connection::sentence(&chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_dead() {
        let job = "01990f3e-0000-7000-8000-000000000001".parse().unwrap();
        let dead = DeadLetter {
            jobs: vec![job],
            message_id: Some("m".to_owned()),
            reason: "gave up after 3 lost executors; the last one: signal 9\nmore".to_owned(),
            origin: "default.normal".to_owned(),
            kind: None,
            bytes: 1234,
            timestamp: None,
        };
        let list = DeadLetter { jobs: vec![job, job, job], ..dead.clone() };
        let unreadable = DeadLetter { jobs: Vec::new(), ..dead.clone() };
        insta::assert_snapshot!(table([&dead, &list, &unreadable].into_iter(), None));
    }
}
