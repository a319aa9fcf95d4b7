//! Machines with a name in rows, on a terminal.

use model::access::machine::NamedMachine;

use super::machine_row::moment;

/// Headings of the columns of [`named_row`].
pub const NAMED_COLUMNS: [&str; 5] = ["NAME", "POOL", "TOKEN", "TAKEN", "USED FROM"];

/// A machine with a name, a cell for each of [`NAMED_COLUMNS`].
pub fn named_row(machine: &NamedMachine) -> Vec<String> {
    vec![
        machine.name.clone(),
        machine.pool.clone(),
        machine.token.label().to_owned(),
        machine.taken.map(moment).unwrap_or_default(),
        machine.used_from(),
    ]
}
