//! The dashboards and alerts in `deploy` use documented metrics, and each alert leads to a runbook. `cargo xtask monitoring` runs them.

use std::{collections::BTreeSet, fs, path::PathBuf};

use regex::Regex;

const METRICS: &str = include_str!("../../docs/src/operate/metrics.md");
const RUNBOOKS: &str = include_str!("../../docs/src/operate/runbooks.md");
const ALERTS: &str = include_str!("../../deploy/prometheus/alerts.yml");
const RUNBOOK_URL: &str = "runbook_url: docs/src/operate/runbooks.md#";

/// Returns the names of the metrics in a text. A histogram is documented under one name, without the suffixes of its series in Prometheus.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\b(gpufleet|rabbitmq)_[a-z_]+").unwrap();
    let parts = Regex::new("_(bucket|sum|count)$").unwrap();
    name.find_iter(text).map(|found| parts.replace(found.as_str(), "").into_owned()).collect()
}

fn dashboards() -> Vec<(PathBuf, String)> {
    let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grafana")).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_metric_of_a_dashboard_or_an_alert_is_documented() {
    let documented = metrics_in(&format!("{METRICS}{RUNBOOKS}"));
    let mut texts = dashboards();
    assert_eq!(texts.len(), 2);
    texts.push(("alerts.yml".into(), ALERTS.to_owned()));
    for (path, text) in texts {
        let used = metrics_in(&text);
        assert!(used.len() > 5, "{}: {used:?}", path.display());
        let unknown: Vec<_> = used.difference(&documented).collect();
        assert!(unknown.is_empty(), "{} has undocumented metrics: {unknown:?}", path.display());
    }
}

#[test]
fn every_alert_leads_to_a_section_of_the_runbooks_that_names_it() {
    let sections: Vec<_> = RUNBOOKS.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap()).collect();
    let mut alerts = 0;
    for alert in ALERTS.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap();
        let (_, anchor) = alert.split_once(RUNBOOK_URL).unwrap_or_else(|| panic!("{name} has no runbook"));
        let anchor = anchor.lines().next().unwrap();
        let section = sections.iter().find(|(title, _)| title.to_lowercase().replace(' ', "-") == anchor);
        let (_, section) = section.unwrap_or_else(|| panic!("{name} leads to {anchor}, which does not exist"));
        assert!(section.contains(&format!("`{name}`")), "the section {anchor} does not name {name}");
        alerts += 1;
    }
    assert!(alerts > 10, "{alerts}");
}
