//! Kernel arguments of a pool, on a machine without machine-config-daemon: Ignition's stage `kargs` sets them.
//!
//! The stage calls `ignition-kargs-helper`, which each operating system brings for its boot loader. These machines have no
//! boot loader, since QEMU starts their kernel, and Debian's helper only refuses. So the helper of this test writes what is
//! missing to a second serial port and restarts the machine; QEMU then starts the kernel with the lines of that port.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use super::file;
use crate::support::manifests::{machine_config_of, selecting_pool, write};
use crate::support::server::{Server, binary, free_ports};
use crate::support::virtual_machine::{HOST, VirtualMachine, assets, program};

/// The kernel arguments of the pool: one that the machine has already, one with a space in quotes, and two in one entry.
const ARGUMENTS: [&str; 3] =
    ["console=ttyS0", r#"site.note="rack 12""#, "hugepagesz=2M hugepages=3"];
const NETWORK: [&str; 4] =
    ["-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host,romfile="];

const HELPER: &str = "#!/bin/bash\n\
    line=\" $(cat /proc/cmdline) \"\n\
    missing=\n\
    while [[ $1 == --should-exist ]]; do\n    \
    [[ $line == *\" $2 \"* ]] || missing+=\"$2\"$'\\n'\n    \
    shift 2\n\
    done\n\
    [[ $# == 0 ]] || exit 1\n\
    [[ -n $missing ]] || exit 0\n\
    printf %s \"$missing\" >/dev/ttyS1\n\
    systemctl reboot --force --force\n";

/// What the user runs who logs in: which user the prompt shows, what the machine started with and how many huge pages it has.
const PROFILE: &str = "echo report: \"$(id -un) has $(cat /proc/cmdline)\"\n\
    echo report: \"huge pages: $(cat /proc/sys/vm/nr_hugepages)\"\n";

fn pool() -> Value {
    let mut pool = selecting_pool("worker");
    pool["metadata"]["annotations"] =
        json!({"machine-config-server.io/kernel-arguments": "ignition"});
    pool
}

/// A user who is logged in at the console's prompt.
fn machine_config() -> Value {
    let getty = "[Service]\nExecStart=\n\
                 ExecStart=-/sbin/agetty --autologin core --keep-baud 115200 %I vt220\n";
    let config = json!({
        "ignition": {"version": "3.3.0"},
        "passwd": {"users": [{"name": "core", "shell": "/bin/bash"}]},
        "storage": {"files": [file("/etc/profile.d/report.sh", 0o644, PROFILE)]},
        "systemd": {"units": [{
            "name": "serial-getty@ttyS0.service", "enabled": true,
            "dropins": [{"name": "10-core.conf", "contents": getty}],
        }]},
    });
    let mut config = machine_config_of("worker", "50-console", &config);
    config["spec"]["kernelArguments"] = json!(ARGUMENTS);
    config
}

/// The machine's initramfs with this helper in the place of Debian's: the kernel unpacks one archive after the other.
fn initramfs(directory: &Path) -> PathBuf {
    let name = "usr/sbin/ignition-kargs-helper";
    let root = directory.join("more");
    write(&root, name, HELPER);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(root.join(name), executable).expect("an own file");
    let mut cpio = program("cpio")
        .args(["--create", "--format=newc", "--owner=0:0", "--quiet"])
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cpio");
    writeln!(cpio.stdin.take().expect("a pipe"), "{name}").expect("a running cpio");
    let more = cpio.wait_with_output().expect("a child of this process");
    assert!(more.status.success(), "{more:?}");
    let mut all = fs::read(assets().join("initramfs")).expect("an initramfs");
    all.resize(all.len().next_multiple_of(4), 0);
    all.extend(more.stdout);
    let path = directory.join("initramfs");
    fs::write(&path, all).expect("a writable folder");
    path
}

#[test]
fn a_machine_without_the_daemon_comes_up_with_the_kernel_arguments_of_its_pool() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| directory.path().join(name);
    write(&place("manifests"), "pool.json", pool());
    write(&place("manifests"), "config.json", machine_config());
    let [at] = free_ports();
    let mut command = binary();
    command.arg("serve").arg(place("manifests")).arg("--state-dir").arg(place("state"));
    command.args(["--host", HOST]);
    let server = Server::prepared_at(command, at).until_ready();
    let pointer = place("state").join("user-data/worker.ign");
    let initramfs = initramfs(directory.path()).display().to_string();
    let loader = place("loader");
    let port = format!("file,id=loader,path={}", loader.display());
    let start = |arguments: &str| {
        let second_port = ["-chardev", &port, "-device", "isa-serial,chardev=loader,index=1"];
        // The last of a flag is the one that QEMU takes.
        let kernel = ["-initrd", &initramfs, "-append", arguments];
        VirtualMachine::boot_with(&pointer, &[&NETWORK[..], &second_port, &kernel].concat())
    };
    let before = include_str!("../../machine/kernel-arguments").trim_end();
    start(before).restarts();
    let added = fs::read_to_string(&loader).expect("what the helper wrote").replace('\r', "");
    assert_eq!(added.lines().collect::<Vec<_>>(), ARGUMENTS[1..], "{added}");

    let now = format!("{before} {}", ARGUMENTS[1..].join(" "));
    let mut machine = start(&now);
    machine.wait_for("the user at the prompt", |it| {
        let console = it.console();
        let lines: Vec<_> = console.lines().filter_map(|it| it.split_once("report: ")).collect();
        let [(_, user), (_, pages)] = lines[..] else { return None };
        assert_eq!(user, format!("core has {now}"), "{console}");
        assert_eq!(pages, "huge pages: 3", "{console}");
        assert!(console.contains("login: core (automatic login)"), "{console}");
        Some(())
    });
    assert_eq!(fs::read(&loader).expect("a file"), b"", "nothing is missing any more");
    // Ignition asks again after the restart.
    assert!(server.log().matches("Pool worker requested").count() > 1, "{}", server.log());
}
