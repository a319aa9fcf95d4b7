//! Result of a check of a node's files.

use std::collections::BTreeMap;

/// Result of a check, with the names of registries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Registries with new or changed files or credentials.
    pub written: Vec<String>,
    /// Registries whose files or credentials existed already as they should be, and are managed from this check on.
    pub adopted: Vec<String>,
    /// Registries whose files or credentials were removed.
    pub removed: Vec<String>,
    /// Problems by path, in one line, without credentials.
    pub problems: BTreeMap<String, String>,
}
