//! Lists facts and parts of a machine, for a terminal and for the page alike.

use secrets::redacted;
use serde::Deserialize as _;
use serde_json::Value;
use time::OffsetDateTime;

use super::kernel_arguments::KernelArguments;
use super::machine::{FileEntry, Machine, NamedEntry, UnitEntry, UserEntry};

/// Headings of facts, in their order.
const FACTS: [(&str, &str); 10] = [
    ("machineConfig", "MachineConfig"),
    ("ignition", "Ignition spec"),
    ("osImage", "System image"),
    ("kernelArguments", "Kernel arguments"),
    ("kernelArgumentsSetBy", "Set by"),
    ("kernelArgumentsRemoved", "Without"),
    ("kernelType", "Kernel"),
    ("extensions", "Extensions"),
    ("fips", "FIPS"),
    ("alsoFetches", "Also fetches"),
];

/// A list of things of one kind, without secrets. Its texts are not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Heading.
    pub heading: &'static str,
    /// Names of the cells.
    pub columns: &'static [&'static str],
    /// A row each; there is at least one.
    pub rows: Vec<Vec<String>>,
}

/// Lists the facts of a machine, names and values, without secrets.
pub fn facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let facts = FACTS.iter().filter_map(|(key, name)| {
        let text = match machine.facts.get(*key)? {
            Value::Bool(true) => "on".to_owned(),
            value => fact_as_text(value),
        };
        Some((*name, redacted(&text).into_owned()))
    });
    facts.collect()
}

pub(super) fn fact_as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Value::Object(_) => setters_as_text(value),
        other => other.to_string(),
    }
}

/// Setters of the kernel arguments, the one fact that is an object.
fn setters_as_text(arguments: &Value) -> String {
    let arguments = KernelArguments::deserialize(arguments).unwrap_or_default();
    arguments.set_by().unwrap_or_default()
}

/// Lists the parts of a machine that are not empty. `now` decides which certificates are shown as expired.
pub fn sections(machine: &Machine, now: OffsetDateTime) -> Vec<Section> {
    let Machine { files, nodes, units, users, groups, disks, .. } = machine;
    let Machine { registries, certificates, secrets, skipped, .. } = machine;
    let certificates = certificates.iter().map(|it| {
        let is_over = it.ends < now.unix_timestamp();
        let until =
            if is_over { format!("{} EXPIRED", it.not_after) } else { it.not_after.clone() };
        vec![it.path.clone(), it.subject.clone(), it.issuer.clone(), until]
    });
    let all = [
        section(
            "Files",
            &["PATH", "MODE", "OWNER", "BYTES", "SENT AS", "WHAT"],
            files.iter().map(file),
        ),
        section("Links and directories", &["PATH", "WHAT"], nodes.iter().map(named)),
        section("Units", &["NAME", "STATE", "TEXT", "DROP-INS"], units.iter().map(unit)),
        section(
            "Users",
            &["NAME", "GROUPS", "SSH KEYS", "PASSWORD", "WHAT"],
            users.iter().map(user),
        ),
        section("Groups", &["NAME", "WHAT"], groups.iter().map(named)),
        section(
            "Disks",
            &["KIND", "NAME", "WHAT"],
            disks.iter().map(|it| vec![it.kind.to_owned(), it.name.clone(), it.what.clone()]),
        ),
        section("Registries trusted", &["HOST"], registries.iter().map(|it| vec![it.clone()])),
        section("Certificates", &["FILE", "SUBJECT", "ISSUER", "UNTIL"], certificates),
        section(
            "Secrets (values are not shown)",
            &["WHERE", "WHAT"],
            secrets.iter().map(|it| vec![it.place.to_string(), it.kind.to_string()]),
        ),
        section("Ignored", &["WHERE AND WHY"], skipped.iter().map(|it| vec![it.clone()])),
    ];
    all.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

fn section(
    heading: &'static str,
    columns: &'static [&'static str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Section {
    let shown = |row: Vec<String>| row.iter().map(|cell| redacted(cell).into_owned()).collect();
    Section { heading, columns, rows: rows.map(shown).collect() }
}

fn file(file: &FileEntry) -> Vec<String> {
    let what =
        if file.is_appended { format!("appended: {}", file.what) } else { file.what.clone() };
    vec![
        file.path.clone(),
        file.mode.clone().unwrap_or_else(|| "-".to_owned()),
        file.owner.clone(),
        file.size.map(|size| size.to_string()).unwrap_or_default(),
        file.compression.clone().unwrap_or_else(|| "-".to_owned()),
        what,
    ]
}

fn named(entry: &NamedEntry) -> Vec<String> {
    vec![entry.name.clone(), entry.what.clone()]
}

fn unit(unit: &UnitEntry) -> Vec<String> {
    let text = if unit.has_contents { "in the config" } else { "-" };
    vec![unit.name.clone(), unit.state.clone(), text.to_owned(), unit.dropins.join(" ")]
}

fn user(user: &UserEntry) -> Vec<String> {
    let password = if user.has_password { "set, not shown" } else { "-" };
    vec![
        user.name.clone(),
        user.groups.join(" "),
        user.ssh_keys.to_string(),
        password.to_owned(),
        user.what.clone(),
    ]
}
