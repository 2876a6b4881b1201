//! What decides the result of a run. A run continues another one only if all of it is equal.

use gpufleet::schema::BlobDigest;
use serde_json::{Value, json};

use super::{Batches, Mapping, Options, Table};
use crate::complaint::Complaint;

pub fn of(options: &Options, table: &Table, mapping: &Mapping, batches: &Batches) -> Result<Value, Complaint> {
    let (length, modified) = table.stamp()?;
    let inputs = mapping.input_columns().iter().map(|input| (input.buffer.clone(), input.column.clone().into()));
    let scalars = options.arg.iter().map(|scalar| (scalar.name.clone(), json!(scalar.value)));
    Ok(json!({
        "release": env!("CARGO_PKG_VERSION"),
        "length of the input": length,
        "time of the input": modified.to_string(),
        "kernel": mapping.kernel().name(),
        "source": mapping.kernel().source().map(|source| BlobDigest::of(source.text.as_bytes()).to_string()),
        "compile options": options.compile_option,
        "columns": inputs.collect::<serde_json::Map<_, _>>(),
        "scalars": scalars.collect::<serde_json::Map<_, _>>(),
        "output columns": mapping.output_columns(),
        "written columns": mapping.schema().fields().iter().map(|field| field.name()).collect::<Vec<_>>(),
        "number for nulls": options.fill_null,
        "rows of a batch": batches.rows_each(),
    }))
}

/// The first setting that is not equal, for people.
pub fn difference(before: &Value, now: &Value) -> Option<String> {
    let names = [before, now].into_iter().filter_map(Value::as_object).flat_map(|settings| settings.keys());
    let name = names.into_iter().find(|name| before.get(name) != now.get(name))?;
    let told = |settings: &Value| settings.get(name).map_or_else(|| "unknown".to_owned(), Value::to_string);
    Some(format!("the {name} was {}, and is now {}", told(before), told(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told() {
        let before = json!({"kernel": "saxpy", "scalars": {"a": 2.0}});
        assert_eq!(difference(&before, &before), None);
        let now = json!({"kernel": "saxpy", "scalars": {"a": 3.0}});
        assert_eq!(difference(&before, &now).unwrap(), r#"the scalars was {"a":2.0}, and is now {"a":3.0}"#);
        let other = json!({"kernel": "saxpy"});
        assert_eq!(difference(&other, &now).unwrap(), r#"the scalars was unknown, and is now {"a":3.0}"#);
    }
}
