//! Formats pages for administrators: HTML that is complete without a script, which keeps it up to date.
//!
//! Each page is a function of a value, from a template that is compiled in. A page loads its style sheet and its script
//! from the same server and nothing else, so that it works behind `kubectl port-forward`.

mod frame;
mod head;
mod machine;
mod machine_query;
mod overview_page;
mod pool;
mod runbook;
mod timeline;
mod trust;
mod when;

pub use self::machine::{MachineView, machine_page};
pub use self::machine_query::MachineQuery;
pub use self::overview_page::{controller_page, counts, overview_page};
pub use self::pool::{PoolView, pool_page};
pub use self::runbook::{Advice, AdvisedMachine};

/// The page's style sheet.
pub const STYLE: &str = include_str!("style.css");
/// The script of all pages.
pub const SCRIPT: &str = include_str!("script.js");

#[cfg(test)]
mod tests;
