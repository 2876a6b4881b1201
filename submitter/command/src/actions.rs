//! `gpufleet actions`: what people did to jobs through programs that act for them.

use chrono::Utc;
use clap::Args;
use gpufleet_ledger::{ActionPage, ActionRow, age};

use super::{
    complaint::Complaint,
    exit::Exit,
    json,
    options::{Format, OutputOptions},
    output,
    source::{Source, SourceOptions},
    spec,
    table::{self, Column},
    waiting::Spinner,
};

/// List what people did to jobs through the console, newest first
///
/// Programs that act for others report it. Commands such as `gpufleet cancel` act for their own user, and are not listed.
#[derive(Debug, Args)]
#[command(after_long_help = json::ACTIONS)]
pub struct Options {
    /// Maximum number of actions, 1 to 1000
    #[arg(long, default_value_t = 50, value_name = "COUNT", value_parser = spec::whole(1..=1000))]
    limit: u32,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    source: SourceOptions,
}

const COLUMNS: [Column; 6] = [
    Column::Left("AGE"),
    Column::Left("WHO"),
    Column::Left("ACTION"),
    Column::Left("TARGET"),
    Column::Left("FROM"),
    Column::Left("REPORTED BY"),
];

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let work = Source::ask(&options.source, async |source| source.actions(options.limit).await);
    let ActionPage { actions, next } = Spinner::new("reading the actions").around(work).await?;
    match options.output.format {
        Format::Json => output::emit_json(&actions)?,
        Format::Table if actions.is_empty() => output::note("nobody has acted through the console yet"),
        Format::Table => output::emit(&render(&actions, output::stdout_width()))?,
    }
    if next.is_some() {
        output::note("there are older ones; see --limit");
    }
    Ok(Exit::Success)
}

fn render(actions: &[ActionRow], width: Option<usize>) -> String {
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let cells = |row: &ActionRow| {
        let age = age(Utc::now() - row.at);
        vec![age, row.who.clone(), row.action.clone(), row.target.clone(), shown(&row.from), shown(&row.reported_by)]
    };
    let rows: Vec<Vec<String>> = actions.iter().map(cells).collect();
    table::fit(&COLUMNS, &rows, width, &["REPORTED BY", "FROM"])
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::ActionId;

    use super::*;

    #[test]
    fn the_help_names_every_field_of_the_json_and_the_table_has_every_value() {
        let row = ActionRow {
            action_id: ActionId::new(),
            at: Utc::now(),
            who: "anna".to_owned(),
            action: "cancel".to_owned(),
            target: "01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e5f".to_owned(),
            from: None,
            reported_by: Some("console".to_owned()),
        };
        json::check(json::ACTIONS, &[&row]);
        let table = render(&[row], None);
        for value in ["anna", "cancel", "01990f3e-5c1a", "console", " - "] {
            assert!(table.contains(value), "{value}: {table}");
        }
    }
}
