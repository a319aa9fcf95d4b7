//! Shared parts of the black-box tests: the built binary as a process, a small HTTP client, the manifests as values,
//! the comparison of two configs, and machines that boot with the real Ignition.

pub(crate) mod access;
pub(crate) mod book;
pub(crate) mod browser;
pub(crate) mod cert_manager;
pub(crate) mod clock;
pub(crate) mod cluster;
mod cluster_servers;
mod cluster_template;
pub(crate) mod cmp_ca;
pub(crate) mod command;
pub(crate) mod contract;
pub(crate) mod daemon_check;
pub(crate) mod disk;
pub(crate) mod events;
pub(crate) mod go;
pub(crate) mod http;
pub(crate) mod ignition_equal;
pub(crate) mod image;
pub(crate) mod logged;
pub(crate) mod machine;
pub(crate) mod manifests;
pub(crate) mod meanwhile;
pub(crate) mod node;
pub(crate) mod openssl;
pub(crate) mod pair;
pub(crate) mod proxy;
pub(crate) mod random;
pub(crate) mod registry;
pub(crate) mod rendered;
pub(crate) mod resource;
pub(crate) mod rest;
pub(crate) mod server;
mod shared_servers;
pub(crate) mod stop;
pub(crate) mod stopwatch;
pub(crate) mod tree;
pub(crate) mod trust_manager;
pub(crate) mod virtual_machine;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

/// Maximum wait: long enough for two busy cores, short enough to end a hopeless run.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);

/// A path below the crate's top folder, as cargo names it now: what was compiled in another checkout may run in this one.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    let folder =
        std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to the tests that it runs");
    Path::new(&folder).join(path)
}

/// Moves this thread, and what it starts, into a network with a loopback interface and nothing else: no server of this
/// machine has a port there.
pub(crate) fn enter_own_network() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root, as tests/run is");
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.expect("ip, of iproute2").success(), "no loopback interface");
}

/// Calls `ask` until it returns a value, less often the longer it takes, because the awaited work needs the processors
/// too. Panics with `what` after the deadline.
pub(crate) fn wait_for<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    let pause = |waited: Duration| (waited / 10).clamp(OFTEN, 10 * OFTEN);
    wait_with(what, pause, ask)
}

/// Calls `is_met` until it returns `true`, as [`wait_for`] does.
pub(crate) fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    wait_for(what, || is_met().then_some(()));
}

/// Calls `ask` at a constant rate, for conditions that must hold at every call.
pub(crate) fn wait_asking<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    wait_with(what, |_| OFTEN, ask)
}

const OFTEN: Duration = Duration::from_millis(5);

fn wait_with<T>(
    what: &str,
    pause: impl Fn(Duration) -> Duration,
    mut ask: impl FnMut() -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let waited = started.elapsed();
        assert!(waited < DEADLINE, "waited {DEADLINE:?} in vain for {what}");
        std::thread::sleep(pause(waited));
    }
}
