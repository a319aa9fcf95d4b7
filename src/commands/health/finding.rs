//! Findings of all sources in one list: each once, the worst first, with its next step.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use model::escape::{REASON, cut, escaped, listed};
use secrets::redacted;
use serde::Serialize;
use table::{Color, TerminalStyle};

use crate::commands::remark::Remark;

/// Things of one fault that a line names. JSON has all of them.
const NAMED: usize = 5;

/// Urgency of a finding, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Machines do not boot, or soon will not.
    Error,
    /// Machines boot at present.
    Warning,
}

/// Source of a finding, those with the most details first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    /// The directory, the cluster or the server cannot be asked.
    Access,
    /// The certificates and pointer configs of a state directory or a cluster.
    Certificates,
    /// The manifests, or the objects of a cluster.
    Manifests,
    /// The connection that a machine would make.
    Connection,
    /// The certificates that a server shows, or that it reports.
    Shown,
    /// The readiness of a server.
    Readiness,
    /// The boot ledger of a server.
    Machines,
}

/// A fault or a warning with its next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// Objects, files, pools, machines or addresses with this fault.
    pub(super) things: Vec<String>,
    /// Fault in one sentence.
    pub(super) what: String,
    /// Next step in one sentence.
    pub(super) fix: String,
    #[serde(skip)]
    pub(super) source: Source,
}

/// Numbers of what was checked, for the line without findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) pools: usize,
    /// Pointer configs.
    pub(super) pointers: usize,
    /// Machines that asked for a config.
    pub(super) machines: usize,
}

/// Result of one source.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    pub(super) counts: Counts,
}

/// Findings of all sources.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HealthReport {
    /// True without an error: the exit code is 0.
    pub(super) is_healthy: bool,
    errors: usize,
    warnings: usize,
    /// Numbers of what was checked.
    checked: Counts,
    /// Findings, the worst first.
    findings: Vec<Finding>,
}

impl Finding {
    /// A finding; a thing at the beginning of `what` is not repeated.
    pub(super) fn new(
        (source, level): (Source, Level),
        thing: &str,
        what: &str,
        fix: impl Into<String>,
    ) -> Self {
        let what =
            what.strip_prefix(thing).map_or(what, |rest| rest.trim_start_matches([':', ' ']));
        let what = redacted(what);
        let thing = match thing.strip_prefix("MachineConfigPool ") {
            Some(pool) => format!("pool {pool}"),
            None => redacted(thing).into_owned(),
        };
        // Some texts have the short form.
        let rest = what.strip_prefix(&*thing).map(|rest| rest.trim_start_matches([':', ' ']));
        let what = rest.unwrap_or(&what);
        let what = cut(what, REASON).into_owned();
        Self { level, what, things: vec![thing], fix: fix.into(), source }
    }

    pub(super) fn of_remark(kind: (Source, Level), remark: &Remark) -> Self {
        Self::new(kind, &remark.thing, &remark.text, &*remark.fix)
    }

    /// Last part of the name, which all paths of one file have.
    fn last_name(&self) -> OsString {
        let first = self.things.first().map(Path::new);
        first.map(|it| it.file_name().unwrap_or(it.as_os_str()).to_owned()).unwrap_or_default()
    }

    /// Returns `true` if both are one fault: of one thing, with one text that contains the other.
    fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (self.what.as_str(), other.what.as_str());
        let is_one = |thing: &String| other.things.iter().any(|it| is_same_thing(thing, it));
        self.things.iter().any(is_one) && (own.contains(others) || others.contains(own))
    }

    /// Returns `true` if the first thing begins so.
    fn names(&self, thing: &str) -> bool {
        self.things.first().is_some_and(|it| it.starts_with(thing))
    }

    /// Order within a level: what concerns all machines, then pools, then single machines.
    fn extent(&self) -> u8 {
        match self.source {
            Source::Machines => 2,
            _ if self.names("pool ") => 1,
            _ => 0,
        }
    }

    fn lines(&self, style: TerminalStyle) -> [String; 2] {
        let (level, ink) = match self.level {
            Level::Error => ("error  ", Color::Bad),
            Level::Warning => ("warning", Color::Notable),
        };
        let named = listed(&self.things, NAMED);
        let text = format!("{}: {}", escaped(&named), escaped(&self.what));
        [
            format!("{}  {text}", style.paint(ink, level)),
            format!("         fix: {}", escaped(&self.fix)),
        ]
    }
}

/// Findings with one text and one fix as one, with all their things.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<Finding> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for finding in findings {
        let key = (finding.level, finding.source, finding.what.clone(), finding.fix.clone());
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.things.extend(finding.things),
            None => groups.push(finding),
        }
    }
    groups
}

/// Returns `true` for one name, or two paths of one file: a server has the path as it was started.
fn is_same_thing(one: &str, other: &str) -> bool {
    let (one, other) = (Path::new(one), Path::new(other));
    let is_path = one.components().count().min(other.components().count()) > 1;
    one == other || is_path && (one.ends_with(other) || other.ends_with(one))
}

impl HealthReport {
    /// Merges the results of all sources.
    pub(super) fn of(results: Vec<Checked>) -> Self {
        let counts = results.iter().map(|it| it.counts).fold(Counts::default(), Counts::max);
        let mut all: Vec<_> = results.into_iter().flat_map(|it| it.findings).collect();
        all.sort_by_key(|finding| (finding.source, finding.level));
        let has_error =
            |source| all.iter().any(|it: &Finding| it.source == source && it.level == Level::Error);
        let (is_known, is_shown) = (has_error(Source::Certificates), has_error(Source::Connection));
        let mut findings: Vec<Finding> = Vec::new();
        let mut by_name: HashMap<OsString, Vec<usize>> = HashMap::new();
        for finding in all {
            // What only counts, or follows from, faults that are listed.
            let is_sum = finding.source == Source::Readiness && finding.names("certificates");
            let is_consequence = finding.source == Source::Shown && is_known;
            if (is_sum && (is_known || is_shown)) || is_consequence {
                continue;
            }
            let of_name = by_name.entry(finding.last_name()).or_default();
            if let Some(at) = of_name.iter().find(|at| findings[**at].is_same(&finding)) {
                findings[*at].level = findings[*at].level.min(finding.level);
            } else {
                of_name.push(findings.len());
                findings.push(finding);
            }
        }
        let mut findings = grouped(findings);
        findings.sort_by_key(|finding| (finding.level, finding.extent()));
        let errors = findings.iter().filter(|it| it.level == Level::Error).count();
        let warnings = findings.len() - errors;
        Self { is_healthy: errors == 0, errors, warnings, checked: counts, findings }
    }

    /// Escaped lines in the style of the output.
    pub(super) fn lines(&self, style: TerminalStyle) -> Vec<String> {
        let Self { errors, warnings, checked, findings, .. } = self;
        if findings.is_empty() {
            let Counts { pools, pointers, machines } = *checked;
            let counts = [
                counted(pools, "pool", "pools"),
                counted(pointers, "pointer config", "pointer configs"),
                counted(machines, "machine that asked", "machines that asked"),
            ];
            return vec![style.paint(Color::Good, &format!("OK: {}", counts.join(", ")))];
        }
        let mut lines: Vec<_> = findings.iter().flat_map(|it| it.lines(style)).collect();
        let errors = counted(*errors, "error", "errors");
        lines.push(format!("{errors}, {}", counted(*warnings, "warning", "warnings")));
        lines
    }
}

impl Counts {
    fn max(self, other: Self) -> Self {
        Self {
            pools: self.pools.max(other.pools),
            pointers: self.pointers.max(other.pointers),
            machines: self.machines.max(other.machines),
        }
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(source: Source, level: Level, thing: &str, what: &str) -> Finding {
        Finding::new((source, level), thing, what, "do it")
    }

    fn report(findings: Vec<Finding>) -> HealthReport {
        HealthReport::of(vec![Checked { findings, counts: Counts::default() }])
    }

    fn shown(findings: Vec<Finding>) -> Vec<String> {
        let lines = report(findings).lines(TerminalStyle::PLAIN);
        lines.into_iter().filter(|line| !line.starts_with("         fix: ")).collect()
    }

    #[test]
    fn errors_come_first_and_what_concerns_all_machines_before_a_single_one() {
        use Level::{Error, Warning};
        let lines = shown(vec![
            finding(Source::Machines, Error, "machine 192.0.2.7", "is stuck"),
            finding(Source::Manifests, Warning, "pool a", "has a remark"),
            finding(Source::Readiness, Error, "pool b", "gets nothing"),
            finding(Source::Certificates, Error, "certs/tls.crt", "has expired"),
        ]);
        assert_eq!(
            lines,
            [
                "error    certs/tls.crt: has expired",
                "error    pool b: gets nothing",
                "error    machine 192.0.2.7: is stuck",
                "warning  pool a: has a remark",
                "3 errors, 1 warning",
            ]
        );
    }

    #[test]
    fn a_fault_that_two_sources_report_is_listed_once_with_its_worse_level() {
        use Level::{Error, Warning};
        for (one, other, expected) in [
            (("a/b.yaml", "it is bad"), ("/srv/a/b.yaml", "it is bad"), 1),
            (("a/b.yaml", "it is bad"), ("/srv/c/b.yaml", "it is bad"), 2),
            (("pool p", "the config is invalid: x"), ("MachineConfigPool p", "x"), 1),
            (("pool p", "x"), ("pool q", "x"), 2),
            (("pool p", "x"), ("pool p", "y"), 2),
            // A bare name is no path.
            (("b.yaml", "it is bad"), ("/srv/a/b.yaml", "it is bad"), 2),
        ] {
            let found = report(vec![
                finding(Source::Readiness, Error, one.0, one.1),
                finding(Source::Manifests, Warning, other.0, other.1),
            ]);
            assert_eq!(found.findings.len(), expected, "{one:?} {other:?}");
            assert_eq!((found.is_healthy, found.findings[0].level), (false, Error));
        }
    }

    #[test]
    fn a_sum_and_a_consequence_of_certificates_are_left_out_if_the_cause_is_listed() {
        use Level::{Error, Warning};
        let sum = finding(Source::Readiness, Warning, "certificates", "locked out: 1");
        let shown_by_server = finding(Source::Shown, Error, "worker.ign", "trusts another CA");
        let cause = finding(Source::Certificates, Error, "certs/worker.ign", "cannot boot");
        let both = vec![sum.clone(), shown_by_server.clone()];
        assert_eq!(report(both.clone()).findings.len(), 2);
        assert_eq!(report([both, vec![cause.clone()]].concat()).findings, [cause]);
        let connected = finding(Source::Connection, Error, "localhost:1", "is down");
        assert_eq!(report(vec![sum, connected.clone()]).findings, [connected]);
    }

    #[test]
    fn a_thing_is_not_repeated_and_foreign_text_stays_in_its_line() {
        let found = finding(Source::Manifests, Level::Warning, "a\n.yaml", "a\n.yaml: x\u{1b}[2J");
        assert_eq!((&*found.things[0], &*found.what), ("a\n.yaml", "x\u{1b}[2J"));
        assert_eq!(found.lines(TerminalStyle::PLAIN)[0], "warning  a\\n.yaml: x\\u{1b}[2J");
        let pool = finding(
            Source::Manifests,
            Level::Error,
            "MachineConfigPool p",
            "MachineConfigPool p: x",
        );
        assert_eq!((&*pool.things[0], &*pool.what), ("pool p", "x"));
        let secret = finding(Source::Connection, Level::Error, "x", "https://a:hunter2@b/ is down");
        assert!(!secret.what.contains("hunter2"), "{}", secret.what);
    }

    #[test]
    fn things_with_one_fault_are_one_finding_of_which_a_line_names_five() {
        let of =
            |last| finding(Source::Machines, Level::Error, &format!("machine {last}"), "is stuck");
        let all = report((1..=8).map(of).collect());
        assert_eq!((all.errors, all.findings[0].things.len()), (1, 8));
        let line = &all.lines(TerminalStyle::PLAIN)[0];
        let named = "machine 1, machine 2, machine 3, machine 4, machine 5 and 3 more: is stuck";
        assert_eq!(*line, format!("error    {named}"));
        let other = finding(Source::Machines, Level::Error, "machine 9", "is lost");
        assert_eq!(report(vec![of(1), other]).findings.len(), 2);
    }

    #[test]
    fn without_a_finding_one_line_counts_what_was_checked() {
        let counts = |pools, pointers, machines| Counts { pools, pointers, machines };
        let result = |counts| Checked { findings: Vec::new(), counts };
        let report = HealthReport::of(vec![result(counts(2, 1, 0)), result(counts(2, 0, 7))]);
        let line = "OK: 2 pools, 1 pointer config, 7 machines that asked";
        assert!(report.is_healthy);
        assert_eq!(report.lines(TerminalStyle::PLAIN), [line]);
        let warned = vec![finding(Source::Manifests, Level::Warning, "a", "b")];
        let warned = self::report(warned);
        assert!(warned.is_healthy, "a warning is no error");
        assert_eq!(warned.lines(TerminalStyle::PLAIN)[2], "0 errors, 1 warning");
    }
}
