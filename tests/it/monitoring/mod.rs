//! What wakes an administrator: alerts that ask for metrics which there are, each with a section of the
//! runbook and a test of its own, and a dashboard. That they come when they should, and at no other time,
//! is [`alert_rules`].

mod metrics;

use std::collections::BTreeSet;
use std::fs;

use inspect::Cause;
use serde_json::Value;

use self::metrics::{Kind, Metric, asked_for, registered};
use crate::support::book::{self, anchors};
use crate::support::server::Server;
use crate::support::{in_repository, manifests};

/// Each command with the component that has its alerts, and the file that registers its metrics.
pub(crate) const COMPONENTS: [Component; 4] = [
    Component {
        name: "server",
        directory: "monitoring",
        job: "machine-config-server",
        metrics: &["crates/telemetry/src/metrics.rs", "crates/telemetry/src/connections.rs"],
    },
    Component {
        name: "controller",
        directory: "controller-monitoring",
        job: "machine-config-server-controller",
        metrics: &["crates/telemetry/src/controllers.rs"],
    },
    Component {
        name: "issuer",
        directory: "issuer-monitoring",
        job: "machine-config-server-issuer",
        metrics: &["crates/telemetry/src/controllers.rs"],
    },
    Component {
        name: "node-ca",
        directory: "node-ca-monitoring",
        job: "machine-config-server-node-ca",
        metrics: &["crates/telemetry/src/node_agent.rs"],
    },
];

pub(crate) struct Component {
    /// Of its tests, `tests/monitoring/NAME.yaml`.
    pub(crate) name: &'static str,
    /// Below `deploy/components`.
    pub(crate) directory: &'static str,
    job: &'static str,
    metrics: &'static [&'static str],
}

impl Component {
    fn alerts(&self) -> Vec<Alert> {
        let path = in_repository(&format!("deploy/components/{}/alerts.yaml", self.directory));
        let text = fs::read_to_string(&path).expect("the alerts");
        let [rule] = &manifests::yaml_documents(&text)[..] else { panic!("one PrometheusRule") };
        let groups = rule["spec"]["groups"].as_array().expect("groups");
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        let alerts: Vec<_> = rules.map(|rule| Alert(rule.clone())).collect();
        assert!(!alerts.is_empty(), "{}", path.display());
        alerts
    }

    fn registered(&self) -> Vec<Metric> {
        let files = self.metrics.iter().map(|file| in_repository(file));
        files.flat_map(|file| registered(&file)).collect()
    }
}

struct Alert(Value);

impl Alert {
    fn name(&self) -> &str {
        self.0["alert"].as_str().expect("a name")
    }

    fn expression(&self) -> &str {
        self.0["expr"].as_str().expect("an expression")
    }

    fn annotation(&self, name: &str) -> &str {
        let text = self.0["annotations"][name].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{} has no {name}", self.name());
        text
    }
}

/// What is asked of a command that it does not have.
fn missing_series(expression: &str, metrics: &[Metric]) -> Vec<String> {
    let series: BTreeSet<String> = metrics.iter().flat_map(Metric::series).collect();
    asked_for(expression).into_iter().filter(|name| !series.contains(name)).collect()
}

#[test]
fn every_alert_asks_for_metrics_that_its_command_has() {
    for component in &COMPONENTS {
        let metrics = component.registered();
        for alert in component.alerts() {
            let expression = alert.expression();
            let missing = missing_series(expression, &metrics);
            assert!(missing.is_empty(), "{} asks for {missing:?}", alert.name());
            let job = format!("job=\"{}\"", component.job);
            let selectors = expression.matches('{').count();
            assert_eq!(
                expression.matches(&job).count(),
                selectors,
                "{}: {expression}",
                alert.name()
            );
        }
    }
}

#[test]
fn every_alert_says_what_it_means_and_where_to_read_on() {
    let runbook = anchors(&book::page("runbook/alerts.md"));
    let mut names = BTreeSet::new();
    for alert in COMPONENTS.iter().flat_map(Component::alerts) {
        let name = alert.name().to_owned();
        for annotation in ["summary", "description", "action"] {
            alert.annotation(annotation);
        }
        let severity = alert.0["labels"]["severity"].as_str().expect("a severity");
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        let (page, anchor) = alert.annotation("runbook_url").split_once('#').expect("an anchor");
        assert_eq!(
            page, "https://docs.example.com/machine-config-server/runbook/alerts.html",
            "{name}"
        );
        assert_eq!(anchor, name.to_lowercase());
        assert!(runbook.contains(anchor), "the runbook has no {anchor}");
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
    // And none that there is no alert for.
    let of_alerts = runbook.iter().filter(|heading| heading.starts_with("machineconfigserver"));
    let lower: BTreeSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let left_over: Vec<_> = of_alerts.filter(|heading| !lower.contains(*heading)).collect();
    assert!(left_over.is_empty(), "{left_over:?}");
}

#[test]
fn every_alert_is_tested_to_come() {
    for component in &COMPONENTS {
        let path = in_repository(&format!("tests/monitoring/{}.yaml", component.name));
        let text = fs::read_to_string(path).expect("the tests");
        let [tests] = &manifests::yaml_documents(&text)[..] else { panic!("one document") };
        let tests = tests["tests"].as_array().expect("tests");
        let all = |list: &str, of: &str| -> Vec<Value> {
            let lists = tests.iter().filter_map(|test| test[list].as_array());
            lists.flatten().filter(|one| one[of].is_array()).cloned().collect()
        };
        let samples = all("promql_expr_test", "exp_samples");
        let samples =
            samples.iter().flat_map(|one| one["exp_samples"].as_array().expect("samples"));
        let mut come: BTreeSet<String> = samples
            .filter_map(|sample| {
                let labels = sample["labels"].as_str().expect("labels");
                Some(labels.split_once("alertname=\"")?.1.split_once('"')?.0.to_owned())
            })
            .collect();
        let reported = all("alert_rule_test", "exp_alerts");
        come.extend(
            reported.iter().map(|one| one["alertname"].as_str().expect("a name").to_owned()),
        );
        for alert in component.alerts() {
            assert!(come.contains(alert.name()), "no test has {} come", alert.name());
        }
    }
}

/// `inspect` ends with the name of a cause, which its reader looks for in the runbook.
#[test]
fn the_runbook_has_every_cause_that_inspect_names() {
    let runbook = book::page("runbook/machines.md");
    assert!(Cause::LABELS.len() > 10);
    for label in Cause::LABELS {
        assert!(runbook.contains(&format!("`{label}`")), "the runbook has no {label}");
    }
}

/// `certs check` names it, and so does the label of `mcs_certificates_attention`.
#[test]
fn each_kind_of_attention_is_said_in_its_alert_and_in_the_runbook() {
    let source =
        fs::read_to_string(in_repository("crates/pki/src/warning.rs")).expect("the source");
    let labels = source.split("pub fn label").nth(1).expect("their names");
    let labels = labels.split("pub fn").next().expect("an end");
    let labels: Vec<_> = labels.split('"').skip(1).step_by(2).collect();
    assert!(labels.len() > 5, "{labels:?}");
    let controller = COMPONENTS.iter().find(|it| it.name == "controller").expect("its alerts");
    let alerts = controller.alerts();
    let is_it = |it: &&Alert| it.name() == "MachineConfigServerCertificatesAttention";
    let alert = alerts.iter().find(is_it).expect("an alert");
    let runbook = book::page("runbook/alerts.md");
    let conditions = book::page("reference/conditions.md");
    for label in &labels {
        assert!(conditions.contains(&format!("`{label}`")), "the reference has no {label}");
    }
    let heading = "### MachineConfigServerCertificatesAttention\n";
    let section = runbook.split(heading).nth(1).expect("a section");
    let section = section.split("\n### ").next().expect("an end");
    // Two have alerts of their own, and one depends on the platform.
    let apart = ["clock", "locked-out", "user-data"];
    for label in labels.into_iter().filter(|it| !apart.contains(it)) {
        assert!(alert.annotation("description").contains(label), "nothing is said of {label}");
        assert!(section.contains(&format!("`{label}`")), "the runbook has no {label}");
    }
}

#[test]
fn the_reference_has_every_metric_and_no_other() {
    let page = book::page("reference/metrics.md");
    let listed = asked_for(&page);
    let mut series = BTreeSet::from(["mcs_administrators_".to_owned()]);
    for metric in COMPONENTS.iter().flat_map(Component::registered) {
        let mut of_it = metric.series();
        // One name is enough for the buckets of a histogram.
        of_it.push(metric.name);
        assert!(of_it.iter().any(|name| listed.contains(name)), "metrics.md lacks {of_it:?}");
        series.extend(of_it);
    }
    let unknown: Vec<_> = listed.difference(&series).collect();
    assert!(unknown.is_empty(), "nothing registers {unknown:?}");
}

#[test]
fn the_runbook_has_each_way_in_which_a_machine_does_not_come_up() {
    let headings = anchors(&book::page("runbook/machines.md"));
    for way in [
        "the-pool-is-unknown",
        "the-pool-has-no-config-yet",
        "the-config-cannot-be-expressed-in-the-machines-spec",
        "the-config-is-invalid",
        "the-pointer-config-trusts-an-old-ca",
        "the-name-is-not-in-the-certificate",
        "the-serving-certificate-has-expired",
        "the-machines-clock-is-wrong",
        "the-machine-is-refused",
        "the-machine-is-not-allowed-to-have-the-config",
        "nothing-reaches-the-server",
        "the-machine-has-its-config-and-does-not-join",
    ] {
        assert!(headings.contains(way), "the runbook has no {way}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let path = in_repository("deploy/monitoring/dashboard.json");
    let text = fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let metrics: Vec<Metric> = COMPONENTS.iter().flat_map(Component::registered).collect();
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    let mut asked = 0;
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is another's");
        let place = |side: &str| panel["gridPos"][side].as_u64().expect("a number");
        assert!(place("x") + place("w") <= 24, "{title} is too wide");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "{title} lies on another panel");
            }
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            let missing = missing_series(expression, &metrics);
            assert!(missing.is_empty(), "{title} asks for {missing:?}");
            asked += 1;
        }
    }
    assert!(asked >= 20, "{asked}");
}

#[test]
fn a_servers_page_has_what_its_source_registers() {
    let server = Server::sample_cluster(&[]);
    let page = server.page("/metrics");
    let typed: BTreeSet<(&str, &str)> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let [server, ..] = &COMPONENTS;
    let metrics = server.registered();
    // What is told apart by labels has no line before it has happened.
    for metric in metrics.iter().filter(|metric| !metric.is_family) {
        let expected = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let pair = (metric.name.as_str(), expected);
        assert!(typed.contains(&pair), "no {pair:?} in {typed:?}");
    }
    for (name, _) in typed {
        let own = name.replace("_administrators", "");
        let known = metrics.iter().any(|metric| metric.name == own);
        assert!(known, "{name} is on the page, and not found in the source");
    }
}
