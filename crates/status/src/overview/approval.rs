//! Machines that wait for approval, and those that are approved, in rows on a terminal.

use model::access::approval::{ApprovedMachine, WaitingMachine};

use super::machine_row::moment;

/// Headings of the columns of [`waiting_row`].
pub const WAITING_COLUMNS: [&str; 6] =
    ["WAITS FOR APPROVAL", "ADDRESS", "POOL", "TOKEN", "IGNITION", "SINCE"];

/// A machine that waits, a cell for each of [`WAITING_COLUMNS`].
pub fn waiting_row(machine: &WaitingMachine) -> Vec<String> {
    vec![
        machine.title(),
        machine.address.to_string(),
        machine.pool.clone(),
        machine.token.clone().unwrap_or_default(),
        machine.ignition.clone().unwrap_or_default(),
        moment(machine.since),
    ]
}

/// Headings of the columns of [`approved_row`].
pub const APPROVED_COLUMNS: [&str; 4] = ["APPROVED", "POOL", "AT", "UNTIL"];

/// A machine that is approved, a cell for each of [`APPROVED_COLUMNS`].
pub fn approved_row(machine: &ApprovedMachine) -> Vec<String> {
    vec![
        machine.title(),
        machine.pool.clone().unwrap_or_default(),
        moment(machine.at),
        moment(machine.until),
    ]
}
