//! The commands of the book that no test types, each with the reason.

use crate::node::book::is_typed;

/// The page, the beginning of the command, and why it is not run.
pub(super) const TABLE: &[(&str, &str, &str)] = &[
    ("README.md", "tests/run", "runs these tests"),
    ("CONTRIBUTING.md", "cargo clippy", "compiles; .ci/run does it"),
    ("CONTRIBUTING.md", "cargo test", "compiles; .ci/full runs the same tests"),
    ("CONTRIBUTING.md", "tests/run", "runs these tests"),
    ("CONTRIBUTING.md", "cargo run", "compiles; README.md's command is run"),
    ("CONTRIBUTING.md", ".ci/run", "runs these tests"),
    ("CONTRIBUTING.md", "cp target/tmp/page", "replaces pictures that a person has looked at"),
    ("CONTRIBUTING.md", "NODE_ROLL_OUTS", "half an hour; .ci/full does it"),
    ("CONTRIBUTING.md", "export KUBEBUILDER_ASSETS", "a node; tests/it/node uses the same scripts"),
    ("CONTRIBUTING.md", "mkdir /tmp/node", "a node; tests/it/node uses the same scripts"),
    ("CONTRIBUTING.md", "tests/node/in", "a node; tests/it/node uses the same scripts"),
    ("CONTRIBUTING.md", "VIRTUAL_MACHINES=yes", "runs tests for minutes; .ci/full does it"),
    ("CONTRIBUTING.md", "fuzz/run", "minutes of processor time; .ci/full does it"),
    ("docs/src/how-to/install.md", ".ci/full", "builds the release; .ci/full does it"),
    ("docs/src/how-to/install.md", "sha256sum", "deploy/check-release does it, with a release"),
    ("docs/src/how-to/install.md", "tar", "deploy/check-release does it, with a release"),
    ("docs/src/how-to/install.md", "cd machine", "deploy/check-release does it, with a release"),
    ("docs/src/how-to/install.md", "./machine", "deploy/check-release does it, with a release"),
    ("docs/src/how-to/image.md", ".ci/full", "builds the release; .ci/full does it"),
    ("docs/src/how-to/image.md", "podman build", "downloads base images, and compiles"),
    ("docs/src/tutorials/network-boot.md", "apt-get", "installs packages on this machine"),
    ("docs/src/tutorials/virtual-machine.md", "apt-get", "installs a package on this machine"),
    (
        "docs/src/tutorials/virtual-machine.md",
        "qemu-system",
        "needs an image that the reader downloads",
    ),
    ("docs/src/how-to/fips.md", "cargo build", "compiles for minutes; .ci/full does it"),
    ("docs/src/how-to/fips.md", "tests/fips", "compiles for minutes; .ci/full does it"),
    ("docs/src/how-to/profile.md", "cargo", "measures a release build for minutes"),
    ("docs/src/how-to/profile.md", "server=", "profiles what the benchmark runs"),
    ("docs/src/how-to/profile.md", "perf", "needs the processor's counters, and the benchmark"),
    ("docs/src/how-to/profile.md", "timeout 10 strace", "traces what the benchmark runs"),
    ("docs/src/how-to/profile.md", "grep", "looks at what the benchmark runs"),
    ("docs/src/how-to/profile.md", "heaptrack", "needs another build"),
    ("docs/src/how-to/profile.md", "git worktree", "the first of two builds to compare"),
    ("docs/src/explanation/performance.md", "cargo bench", "measures a release build for minutes"),
    ("docs/src/explanation/performance.md", "tests/run", "runs tests"),
    ("docs/src/explanation/performance.md", "MODEL_STATES", "runs tests; .ci/full does it"),
    ("docs/src/how-to/directory.md", "deploy/package", "compiles; .ci/run package does it"),
    (
        "docs/src/how-to/directory.md",
        "apt-get",
        "deploy/check-service types it where systemd runs, in .ci/full package",
    ),
    (
        "docs/src/how-to/directory.md",
        "systemctl",
        "deploy/check-service types it where systemd runs, in .ci/full package",
    ),
    ("docs/src/how-to/monitor.md", "mdbook build", "needs mdBook; .ci/run doc does it"),
    ("docs/src/how-to/render.md", "oc -n", "kubectl has no command like `oc extract`"),
    (
        "docs/src/runbook/index.md",
        "journalctl",
        "deploy/check-service types it where systemd runs, in .ci/full package",
    ),
];

/// The index of the entry for a command.
pub(super) fn entry(page: &str, command: &str) -> Option<usize> {
    TABLE.iter().position(|(listed, begins, _)| *listed == page && command.starts_with(begins))
}

/// Returns `true` if a command is not run with the others of its page: it is in the table, or a test on a node types it.
pub(super) fn is_left_out(page: &str, command: &str) -> bool {
    entry(page, command).is_some() || is_typed(page, command)
}
