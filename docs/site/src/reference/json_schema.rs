//! `task.schema.json` and its like: the bodies of messages as JSON Schema, from the types of the contract.

use gpufleet_schema::json_schema;

/// The files with their texts.
pub fn files() -> [(&'static str, String); 5] {
    [
        ("task.schema.json", json_schema::task()),
        ("reply.schema.json", json_schema::reply()),
        ("event.schema.json", json_schema::events()),
        ("order.schema.json", json_schema::order()),
        ("progress.schema.json", json_schema::progress()),
    ]
    .map(|(name, schema)| (name, format!("{:#}\n", schema.as_value())))
}

#[cfg(test)]
mod tests;
