//! The tutorials about virtual machines, whose processor is emulated where a test runs: `tests/machine/install` says when.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::shell::apart;
use super::walk::{PAGE, Page, Terminal, walk};
use crate::support::{in_repository, virtual_machine};

/// A page whose machine gets the config of the first one's pool.
const MACHINE: Page = Page {
    files: &[("manifests/worker.yaml", "tutorials/virtual-machine.md", "name: 50-hello")],
    before: &["ln -s \"$REPOSITORY/tests\" tests"],
    filled_in: &[("cargo run --release -- ", "machine-config-server ")],
    ..PAGE
};

pub(super) const PAGES: &[Page] = &[
    Page { name: "docs/src/tutorials/virtual-machine.md", ..MACHINE },
    Page {
        name: "docs/src/tutorials/network-boot.md",
        files: &[
            ("manifests/worker.yaml", "tutorials/virtual-machine.md", "name: 50-hello"),
            ("boot/boot.ipxe", "tutorials/network-boot.md", "#!ipxe"),
            ("dnsmasq.conf", "tutorials/network-boot.md", "dhcp-range="),
        ],
        ..MACHINE
    },
];

#[test]
fn virtual_machines_boot_as_the_tutorials_say() {
    // Debian's, of the machine's own file system.
    let programs = tempfile::tempdir().expect("a temporary folder");
    let dnsmasq = virtual_machine::program("dnsmasq");
    let words = std::iter::once(dnsmasq.get_program()).chain(dnsmasq.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
    let path = programs.path().join("dnsmasq");
    fs::write(&path, script).expect("a writable folder");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of this test");

    let variables = [
        ("REPOSITORY", in_repository("").display().to_string()),
        ("XDG_CACHE_HOME", virtual_machine::cache()),
        // As on a terminal.
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
    let programs = vec![programs.path().to_owned()];
    apart(|| walk(PAGES, &Terminal { programs, variables, ..Terminal::default() }));
}
