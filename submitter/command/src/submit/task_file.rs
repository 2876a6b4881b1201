//! Task files: a schema task in JSON or TOML, which may name files in place of data.
//!
//! Besides the schema's fields, a task file may have `pool`, `priority` and `save` (output name to file). `version` and
//! `job_id` may be missing. A buffer's `data` may be `{"file": "x.npy"}`, which also supplies dtype and shape; a
//! program's code may be `{"file": "edge.cu"}`. Paths are relative to the task file. `{"blob": "blake3:…"}` names an
//! array in the blob store. Unlike on the wire, an unknown field is an error, because it is probably a typing mistake.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gpufleet::{
    Job,
    schema::{Buffer, Data, Inline, JobId, Launch, PoolName, Priority, Task, VERSION},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    keeping::Keeping,
    plan::{Plan, SourceText},
};
use crate::{
    complaint::Complaint,
    files::{self, Input, Purpose},
    spec::Form,
};

mod digits;

const TOP: &[&str] = &[
    "version",
    "job_id",
    "name",
    "labels",
    "program",
    "signature",
    "arguments",
    "buffers",
    "launches",
    "outputs",
    "large_outputs",
    "keep_ms",
    "limits",
    "requires",
    "reply",
    "submitted_ms",
    "pool",
    "priority",
    "save",
];
const BUFFER: &[&str] = &["name", "dtype", "shape", "data", "share"];
const LAUNCH: &[&str] = &["entry", "grid", "block", "shared_bytes", "args", "repeat"];
const LIMITS: &[&str] = &["time_limit_ms", "queue_limit_ms", "attempts_max", "memory_bytes_max"];
const REQUIRES: &[&str] = &["compute_capability_min", "memory_bytes_min", "device"];
const SOURCE: &[&str] = &["code", "options", "file"];

/// Reads a task file and all files that it names.
pub fn read(path: &Path, inputs: Purpose) -> Result<Plan, Complaint> {
    let text = files::read_text(path, Purpose::TaskFile)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, is_toml(path), folder, inputs).map_err(|mut complaint| {
        complaint.message = format!("{}: {}", path.display(), complaint.message);
        complaint
    })
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"))
}

fn parse(text: &str, is_toml: bool, folder: &Path, inputs: Purpose) -> Result<Plan, Complaint> {
    let mut task = if is_toml {
        digits::of_toml(text).map_err(|problem| bad(format!("invalid TOML: {problem}")))?
    } else {
        digits::of_json(text).map_err(|problem| {
            bad(format!("not a JSON object: {problem}"))
                .hint("a task file with the extension .toml is read as TOML, any other as JSON")
        })?
    };
    check_keys(&task)?;
    let pool: PoolName = take(&mut task, "pool")?.unwrap_or_default();
    let priority: Priority = take(&mut task, "priority")?.unwrap_or_default();
    let save: BTreeMap<String, PathBuf> = take(&mut task, "save")?.unwrap_or_default();
    let source = read_program(&mut task, folder)?;
    let contents = read_buffers(&mut task, folder, inputs)?;
    task.entry("version").or_insert_with(|| json!(VERSION));
    task.entry("job_id").or_insert_with(|| json!(JobId::new()));
    let mut task = decode(task)?;
    let mut files = Vec::new();
    for (index, input) in contents {
        match input {
            Input::Array(array) => task.buffers[index].data = Data::Inline(Inline::from(array.into_bytes())),
            Input::File(file) => files.push((index, file)),
        }
    }
    let saves = save.into_iter().map(|(name, file)| (name, folder.join(file))).collect();
    let job = Job::from_task(task).pool(pool.clone()).priority(priority);
    let job = files.into_iter().fold(job, |job, (index, file)| job.contents(index, file));
    Ok(Plan { job, pool, saves, source, has_store: false, keeping: Keeping::default() })
}

fn bad(problem: impl Into<String>) -> Complaint {
    Complaint::bad_input(problem)
}

fn check_keys(task: &Map<String, Value>) -> Result<(), Complaint> {
    check_object("", Some(task), TOP)?;
    for (name, known) in [("buffers", BUFFER), ("launches", LAUNCH)] {
        for (index, item) in task.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            check_object(&format!("{name}[{index}]."), item.as_object(), known)?;
        }
    }
    let object = |name: &str| task.get(name).and_then(Value::as_object);
    check_object("limits.", object("limits"), LIMITS)?;
    check_object("requires.", object("requires"), REQUIRES)?;
    let source = object("program").and_then(|program| program.get("source")).and_then(Value::as_object);
    check_object("program.source.", source, SOURCE)
}

fn check_object(prefix: &str, object: Option<&Map<String, Value>>, known: &[&str]) -> Result<(), Complaint> {
    match object.into_iter().flat_map(Map::keys).find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            Err(bad(format!("unknown field {prefix}{key}")).hint(format!("the fields are {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn take<T: DeserializeOwned>(task: &mut Map<String, Value>, key: &str) -> Result<Option<T>, Complaint> {
    let value = task.remove(key).map(serde_json::from_value).transpose();
    value.map_err(|problem| bad(format!("{key}: {problem}")))
}

/// The name, if the value is `{"file": NAME}`.
fn file_of(value: &Value, folder: &Path) -> Option<PathBuf> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get("file")?.as_str().map(|file| folder.join(file))
}

/// Replaces `{"file": NAME}` by the text of the file.
fn read_program(task: &mut Map<String, Value>, folder: &Path) -> Result<Option<SourceText>, Complaint> {
    let Some(program) = task.get_mut("program").and_then(Value::as_object_mut) else { return Ok(None) };
    let (slot, path) = if let Some(ptx) = program.get_mut("ptx") {
        let path = file_of(ptx, folder);
        (ptx, path)
    } else if let Some(source) = program.get_mut("source").and_then(Value::as_object_mut) {
        if let Some(file) = source.remove("file") {
            source.insert("code".to_owned(), json!({ "file": file }));
        }
        let code = source.entry("code").or_insert(Value::Null);
        let path = file_of(code, folder);
        (code, path)
    } else {
        return Ok(None);
    };
    let Some(path) = path else { return Ok(None) };
    let text = files::read_text(&path, Purpose::Program)?;
    *slot = Value::String(text.clone());
    Ok(Some(SourceText { path, text }))
}

/// Reads the buffers' files. Their contents go into the decoded task, because encoding them as text would only cost
/// memory.
fn read_buffers(
    task: &mut Map<String, Value>,
    folder: &Path,
    inputs: Purpose,
) -> Result<Vec<(usize, Input)>, Complaint> {
    let mut contents = Vec::new();
    for (index, buffer) in task.get_mut("buffers").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        let Some(buffer) = buffer.as_object_mut() else { continue };
        if let Some(path) = buffer.get("data").and_then(|data| file_of(data, folder)) {
            let input = files::input(&path, form_of(buffer, index)?.as_ref(), inputs)?;
            let (dtype, shape) = match &input {
                Input::Array(array) => (array.dtype(), array.shape()),
                Input::File(file) => (file.dtype(), file.shape()),
            };
            buffer.insert("data".to_owned(), json!("zeros"));
            buffer.insert("dtype".to_owned(), json!(dtype));
            buffer.insert("shape".to_owned(), json!(shape));
            contents.push((index, input));
        }
    }
    Ok(contents)
}

fn form_of(buffer: &Map<String, Value>, index: usize) -> Result<Option<Form>, Complaint> {
    let (Some(dtype), Some(shape)) = (buffer.get("dtype"), buffer.get("shape")) else { return Ok(None) };
    let field = |name: &str, problem: serde_json::Error| bad(format!("buffers[{index}].{name}: {problem}"));
    Ok(Some(Form {
        dtype: serde_json::from_value(dtype.clone()).map_err(|problem| field("dtype", problem))?,
        shape: serde_json::from_value(shape.clone()).map_err(|problem| field("shape", problem))?,
    }))
}

/// Decodes the task. If that fails, its parts are decoded one by one, so that the message names the invalid part.
fn decode(task: Map<String, Value>) -> Result<Task<'static>, Complaint> {
    let task = Value::Object(task);
    let blame = |problem: serde_json::Error| {
        let buffers = first_bad(&task, "buffers", |item| serde_json::from_str::<Buffer<'_>>(item).err());
        let launches = || first_bad(&task, "launches", |item| serde_json::from_str::<Launch>(item).err());
        let complaint = bad(buffers.or_else(launches).unwrap_or_else(|| unplaced(&problem)));
        match task.get("program") {
            Some(_) => complaint,
            None => complaint.hint(
                "name a program, such as \"program\": { \"catalog\": \"saxpy\" } or \"program\": { \"source\": { \"file\": \"k.cu\" } }",
            ),
        }
    };
    // The task borrows its lists of numbers from this text.
    serde_json::from_str(&task.to_string()).map(Task::into_owned).map_err(blame)
}

fn first_bad(task: &Value, name: &str, problem: fn(&str) -> Option<serde_json::Error>) -> Option<String> {
    let mut items = task.get(name)?.as_array()?.iter().enumerate();
    items.find_map(|(index, item)| Some(format!("{name}[{index}]: {}", unplaced(&problem(&item.to_string())?))))
}

/// The message without line and column, which refer to a generated text.
fn unplaced(problem: &serde_json::Error) -> String {
    let text = problem.to_string();
    let place = format!(" at line {} column {}", problem.line(), problem.column());
    text.strip_suffix(&place).map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests;
