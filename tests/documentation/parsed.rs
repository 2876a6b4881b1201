//! Data blocks: they are parsed, but nothing is executed.

use std::{fs, path::Path, sync::LazyLock};

use gpufleet_schema::{Buffer, Encoding, Event, Launch, Limits, Order, Reply, Requires, Task, encoding::OneOrMany};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The folders of the programs that write logs.
const PROGRAMS: [&str; 9] = [
    "blobs/src",
    "service/src",
    "console/src",
    "worker/src",
    "ledger/src",
    "telemetry/src",
    "transport/src",
    "submitter/client/src",
    "submitter/command/src",
];
/// Matches a log line and captures its message, which is between the module and the first field.
static LOG_LINE: LazyLock<Regex> = LazyLock::new(|| {
    let line = r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR) [a-z_:]+: (.+?)(?: …| [a-z_.]+=.*)?$";
    Regex::new(line).expect("the pattern is correct")
});

/// Parses JSON as one of the types that a page can name in `<!-- type: NAME -->`.
pub fn json(text: &str, name: &str) -> Result<(), String> {
    match name {
        "task" => task(text),
        "reply" => item::<Reply<'_>>(text),
        "launch" => item::<Launch>(text),
        "buffer" => item::<Buffer<'_>>(text),
        "limits" => item::<Limits>(text),
        "requires" => item::<Requires>(text),
        "order" => item::<Order>(text),
        "event" => item::<Event>(text),
        "any" => serde_json::from_str::<Value>(text).map(drop).map_err(|error| error.to_string()),
        _ => Err(format!(
            "no such type: {name}; known are task, reply, launch, buffer, limits, requires, order, event, any"
        )),
    }
}

/// Checks that the text is that of a file of the repository.
pub fn copy(text: &str, path: &str, root: &Path) -> Result<(), String> {
    let file = fs::read_to_string(root.join(path)).map_err(|error| format!("failed to read {path}: {error}"))?;
    if text == file { Ok(()) } else { Err(format!("the block differs from {path}: copy the file")) }
}

/// Checks that a worker would accept the task.
fn task(text: &str) -> Result<(), String> {
    let tasks = Encoding::Json.decode_tasks(text.as_bytes()).map_err(|error| error.to_string())?;
    let tasks: OneOrMany<Task<'_>> = tasks;
    tasks.iter().try_for_each(|task| task.check()).map_err(|error| error.to_string())?;
    tasks.iter().try_for_each(|task| complete(text, task))
}

fn item<'a, T: Deserialize<'a> + Serialize>(text: &'a str) -> Result<(), String> {
    let item: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    complete(text, &item)
}

/// Checks that the page has no unknown fields, because readers of the wire format would ignore them.
fn complete<T: Serialize>(text: &str, item: &T) -> Result<(), String> {
    let shown: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read = serde_json::to_value(item).map_err(|error| error.to_string())?;
    unknown(&shown, &read, "").map_or(Ok(()), |field| Err(format!("the type has no field {field}")))
}

/// Returns the first key that was not read. A list may be serialized in another form, such as base64.
fn unknown(shown: &Value, read: &Value, path: &str) -> Option<String> {
    match (shown, read) {
        (Value::Object(shown), Value::Object(read)) => shown.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match read.get(key) {
                Some(read) => unknown(value, read, &path),
                None => Some(path),
            }
        }),
        (Value::Array(shown), Value::Array(read)) => {
            let mut pairs = shown.iter().zip(read).enumerate();
            pairs.find_map(|(at, (shown, read))| unknown(shown, read, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

pub fn toml(text: &str) -> Result<(), String> {
    text.parse::<::toml::Table>().map(drop).map_err(|error| error.to_string())
}

/// Checks log lines such as `WARN gpufleet_worker::supervisor: message key=value`. The sources must contain the
/// message, or a longer one that begins with it.
pub fn log(text: &str, root: &Path) -> Result<(), String> {
    let sources: Vec<String> = PROGRAMS.iter().flat_map(|folder| sources(&root.join(folder))).collect();
    text.lines().try_for_each(|line| {
        let message = LOG_LINE.captures(line).ok_or_else(|| format!("not a log line: {line}"))?[1].to_owned();
        let quoted =
            Regex::new(&format!("\"{}[\" ,;:]", regex::escape(&message))).expect("an escaped text is a pattern");
        let is_written = sources.iter().any(|source| quoted.is_match(source));
        if is_written { Ok(()) } else { Err(format!("no program logs \"{message}\"")) }
    })
}

/// Returns the text of all Rust files in a folder and its subfolders.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let texts = entries.flat_map(|path| match path.extension() {
        Some(extension) if extension == "rs" => fs::read_to_string(&path).into_iter().collect(),
        _ => sources(&path),
    });
    texts.collect()
}

/// Checks that the page of a Rust block is among the doctests of the client, which compile the block.
pub fn rust(page: &str, root: &Path) -> Result<(), String> {
    let library = "submitter/client/src/lib.rs";
    let text = fs::read_to_string(root.join(library)).map_err(|error| error.to_string())?;
    let line = format!("#[doc = include_str!(\"../../../{page}\")]");
    if text.contains(&line) {
        Ok(())
    } else {
        Err(format!("add {line} to {library}, which compiles the Rust of the pages"))
    }
}

#[test]
fn an_example_with_a_field_that_the_type_lacks_is_refused() {
    let launch = r#"{ "entry": "f", "grid": { "blocks": [1] }, "block": { "threads": [1] }, "args": [] }"#;
    assert_eq!(json(launch, "launch"), Ok(()));
    let error = json(&launch.replace("args", "arguments"), "launch").unwrap_err();
    assert_eq!(error, "the type has no field .arguments");
    assert!(json(launch, "lunch").unwrap_err().starts_with("no such type: lunch"));
}

#[test]
fn a_log_line_that_no_program_writes_is_refused() {
    let root = crate::ground::root();
    let line = |message: &str| {
        format!("2026-11-22T20:03:07Z  INFO gpufleet_worker::supervisor: {message} worker=gpu-7 pools=default\n")
    };
    assert_eq!(log(&line("ready"), root), Ok(()));
    assert_eq!(log(&line("readily"), root), Err("no program logs \"readily\"".to_owned()));
    assert_eq!(log("ready\n", root), Err("not a log line: ready".to_owned()));
}
