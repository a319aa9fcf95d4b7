//! The tutorial about a virtual machine, whose processor is emulated where a test runs: `tests/machine/install` says when.

use super::shell::apart;
use super::walk::{PAGE, Page, Terminal, walk};
use crate::support::in_repository;

pub(super) const PAGES: &[Page] = &[Page {
    name: "docs/src/tutorials/virtual-machine.md",
    files: &[("manifests/worker.yaml", "tutorials/virtual-machine.md", "name: 50-hello")],
    before: &["ln -s \"$REPOSITORY/tests\" tests"],
    filled_in: &[("cargo run --release -- ", "machine-config-server ")],
    ..PAGE
}];

#[test]
fn a_virtual_machine_boots_as_the_tutorial_says() {
    let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache")
    });
    let variables =
        [("REPOSITORY", in_repository("").display().to_string()), ("XDG_CACHE_HOME", cache)];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
    apart(|| walk(PAGES, &Terminal { variables, ..Terminal::default() }));
}
