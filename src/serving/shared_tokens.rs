//! Reports of machines' tokens that are used from several addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::overview::History;
use time::OffsetDateTime;

use crate::telemetry::Reporting;
use crate::telemetry::conditions::Condition;

/// Reports that a token is used from another address than before.
pub(super) fn report_shared_use(history: &History, name: &str, address: IpAddr) {
    tracing::warn!(
        machine = name,
        %address,
        fix = "if the machine has one address, someone has copied its pointer config: remove its \
               FirstBootMachine",
        "the token of a machine is used from another address"
    );
    history.note(shared_note(name, address), OffsetDateTime::now_utc());
}

/// The report in one line.
pub(super) fn shared_note(name: &str, address: IpAddr) -> String {
    format!("machine {name}: its token is used from another address, {address}")
}

/// A token with its addresses in one line.
pub(super) fn shared_line(name: &str, addresses: &BTreeSet<IpAddr>) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    format!("machine {name}: used from {}", addresses.join(", "))
}

/// Reports all tokens that were used from several addresses, one line each.
pub(super) fn report_shared(reporting: &Reporting, lines: &[String]) {
    let count = lines.len().try_into().unwrap_or(i64::MAX);
    reporting.metrics.machine_tokens_shared.set(count);
    Condition::of_all("tokens of machines that were copied", lines)
        .note(&reporting.status.degraded);
}
