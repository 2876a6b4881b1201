//! Tests gpufleet's guarantees on a real broker, a real database and real processes, with the emulated device.
//!
//! Each file begins with the behaviour that it tests. Each test has a vhost and a database of its own, so several run at once: `cargo xtask
//! test` runs three for each core, because they wait for most of their time. Tests that break a service have services of their own.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod affinity;
mod attaching;
mod awkward_headers;
mod broker_lost;
mod broker_trouble;
mod cancelling;
mod catalog;
mod claim_checks;
mod command;
mod compiling;
mod confined;
mod console;
mod console_progress;
mod containers;
mod cut_connections;
mod dead_letters;
mod detaching;
mod device_sick;
mod devices;
mod doctor;
mod encrypted;
mod events;
mod executor_lost;
mod exporting;
mod followers;
mod following;
mod foreign_producer;
mod half_open;
mod hostile_messages;
mod kept_results;
mod large_outputs;
mod launches;
mod limits;
mod local_fleet;
mod memory;
mod metrics;
mod modules;
mod monitoring;
mod nemesis;
mod notebooks;
mod own_writes;
mod packing;
mod parquet;
mod partial_outage;
mod permissions;
mod policy;
mod pools;
mod postgres_lost;
mod prefetch;
mod printing;
mod programs;
mod progress;
mod pruning;
mod quarantine;
mod read_api;
mod refused_outcomes;
mod refused_submits;
mod requirements;
mod resident_inputs;
mod retrying;
mod s3_blobs;
mod secrets;
mod sessions;
mod several_urls;
mod spare;
mod starting;
mod statistics;
mod stopping;
mod storing_files;
mod tenants;
mod traces;
mod two_workers;
mod unbounded_queues;
mod unconfirmed_events;
mod why;
mod worker_dies_at;
mod worker_lost;
mod worker_start;

/// Every test that the table of faults in the README names is in a scenario file.
#[test]
fn every_scenario_that_the_readme_names_exists() {
    let readme = include_str!("../README.md");
    let (_, table) = readme.split_once("| # | fault | scenario |").expect("the README has the table of faults");
    let named: Vec<_> = table.split('`').filter_map(|word| word.split_once("::")).collect();
    assert!(named.len() > 40, "{named:?}");
    for (module, name) in named {
        let path = format!("{}/scenarios/{module}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(source.contains(&format!("async fn {name}(")), "{module} has no scenario {name}");
    }
}
