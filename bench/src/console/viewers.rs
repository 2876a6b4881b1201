//! Counts the database's statements while viewers watch the console.

use std::{fs, path::Path, time::Duration};

use anyhow::ensure;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::Options;
use crate::table::table;

/// The topics that the overview and the list of jobs subscribe to.
const TOPICS: [&str; 5] = [
    "/v1/overview",
    "/v1/statistics/series",
    "/v1/jobs?state=failed%26state=dead%26state=expired%26limit=8",
    "/v1/workers",
    "/v1/jobs?limit=100",
];
/// The threshold for many viewers, as a multiple of one viewer's statements.
const GROWTH_MAX: f64 = 1.1;
/// How long to wait until the console has noticed the closed streams, which takes seconds.
const SILENT_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_secs(5);

/// Counts and prints statements per second: without a viewer, with one, with many, and after all have left.
pub(super) async fn count(console: &str, log: &Path, options: &Options) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let query: Vec<String> = TOPICS.iter().map(|topic| format!("topic={topic}")).collect();
    let url = format!("{console}/live?{}", query.join("&"));
    let span = Duration::from_secs(options.seconds.into());
    let before = per_second(log, span).await?;
    let mut viewers = JoinSet::new();
    watch(&mut viewers, &client, &url, 1).await?;
    let one = per_second(log, span).await?;
    watch(&mut viewers, &client, &url, options.viewers - 1).await?;
    let many = per_second(log, span).await?;
    ensure!(viewers.try_join_next().is_none(), "a stream ended");
    viewers.shutdown().await;
    let after = silence(log).await?;
    let mut rows = table(["viewers", "statements/s", "of one viewer"]);
    rows.add_row(["none".to_owned(), format!("{before:.2}"), String::new()]);
    rows.add_row(["1".to_owned(), format!("{one:.2}"), String::new()]);
    rows.add_row([options.viewers.to_string(), format!("{many:.2}"), format!("{:.2}", many / one)]);
    rows.add_row(["none again".to_owned(), format!("{after:.2}"), String::new()]);
    println!("{} s each\n{rows}", options.seconds);
    ensure!(before == 0.0 && one > 0.0, "statements without a viewer, or none with one");
    ensure!(many <= GROWTH_MAX * one, "more than {GROWTH_MAX} of one viewer's statements");
    Ok(())
}

/// Opens streams, and reads each of them until it is aborted.
async fn watch(viewers: &mut JoinSet<()>, client: &reqwest::Client, url: &str, count: u32) -> anyhow::Result<()> {
    for _ in 0..count {
        let mut stream = client.get(url).send().await?.error_for_status()?;
        stream.chunk().await?;
        viewers.spawn(async move { while let Ok(Some(_)) = stream.chunk().await {} });
    }
    Ok(())
}

async fn per_second(log: &Path, span: Duration) -> anyhow::Result<f64> {
    let (begun, before) = (Instant::now(), executed(log)?);
    sleep(span).await;
    Ok((executed(log)? - before) as f64 / begun.elapsed().as_secs_f64())
}

/// Waits for a time window without statements, and returns their rate in the latest one.
async fn silence(log: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    loop {
        let rate = per_second(log, POLL).await?;
        if rate == 0.0 {
            return Ok(rate);
        }
        ensure!(begun.elapsed() < SILENT_WITHIN, "the console asks {rate:.2} statements/s without viewers");
    }
}

/// Counts the executed statements in the log. A prepared statement has a line for each step, one of which executes it.
fn executed(log: &Path) -> anyhow::Result<usize> {
    let text = fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter(|line| line.contains("  execute ") || line.contains("  statement: ")).count())
}
