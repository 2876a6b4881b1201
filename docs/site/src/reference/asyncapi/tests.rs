use std::fs;

use gpufleet_schema::topology;
use serde_json::Value;

use super::*;
use crate::reference::tests::root;

fn parsed() -> Value {
    serde_json::from_str(&document()).unwrap()
}

fn each_reference(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| each_reference(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| each_reference(item, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_valid_by_the_schema_of_asyncapi_3() {
    let schema = fs::read_to_string(root().join("docs/site/asyncapi/schema-3.0.0.json")).unwrap();
    let validator = jsonschema::draft7::new(&serde_json::from_str(&schema).unwrap()).unwrap();
    if let Err(error) = validator.validate(&parsed()) {
        panic!("{error} at {}", error.instance_path());
    }
    for (pointer, value) in [
        ("/asyncapi", json!("2.6.0")),
        ("/operations/sendTask/action", json!("publish")),
        ("/channels/tasks/bindings/amqp/is", json!("exchange")),
        ("/info/title", json!(7)),
    ] {
        let mut broken = parsed();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert!(!validator.is_valid(&broken), "{pointer} is not checked");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = parsed();
    let mut references = Vec::new();
    each_reference(&document, &mut references);
    assert!(references.len() > 50, "{}", references.len());
    for reference in references {
        match reference.strip_prefix('#') {
            Some(pointer) => assert!(document.pointer(pointer).is_some(), "{reference}"),
            None => {
                let file = reference.strip_prefix("./").unwrap();
                let known = crate::reference::json_schema::files();
                assert!(known.iter().any(|(name, _)| *name == file), "{reference}");
            }
        }
    }
}

#[test]
fn every_parameter_of_an_address_is_described() {
    for (name, channel) in parsed()["channels"].as_object().unwrap() {
        let address = channel["address"].as_str().unwrap();
        let used: Vec<&str> = address.split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
        let described = channel["parameters"].as_object().map_or(0, serde_json::Map::len);
        assert_eq!(described, used.len(), "{name}");
        assert!(used.iter().all(|parameter| channel["parameters"][parameter]["description"].is_string()), "{name}");
    }
}

#[test]
fn every_name_on_the_broker_is_in_the_document() {
    let source = fs::read_to_string(root().join("schema/src/topology.rs")).unwrap();
    let source = source.split("#[cfg(test)]").next().unwrap();
    let is_name = |text: &&str| {
        let is_ours =
            text.starts_with("gpufleet.v1.") || text.starts_with("gpufleet-") || text.starts_with("gpufleet.");
        is_ours && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
    };
    // The queues by which workers claim their names carry no messages.
    let names: Vec<&str> = source.split('"').filter(is_name).filter(|name| *name != topology::WORKERS).collect();
    assert!(names.len() > 25, "{names:?}");
    let document = document();
    for name in names {
        assert!(document.contains(&format!("\"{name}\"")), "{name} is missing");
    }
}
