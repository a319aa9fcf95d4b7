//! Virtual machines of the image that `tests/machine/install` makes, which boot for the first time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::registry::Registry;

/// The host's loopback interface, as QEMU's network shows it to the machine.
pub(crate) const HOST: &str = "10.0.2.2";
/// A machine whose processor is emulated takes a minute or two, and on a busy machine many times that.
const LONGEST_BOOT: Duration = Duration::from_secs(1800);

/// The folder that `tests/machine/install` made.
pub(crate) fn assets() -> PathBuf {
    let directory = std::env::var_os("VIRTUAL_MACHINE");
    directory.expect("VIRTUAL_MACHINE names no folder with a machine's parts: run tests/run").into()
}

/// The folder of caches that the scripts use, for commands with another home.
pub(crate) fn cache() -> String {
    std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache")
    })
}

/// A program of the machine's file system, with the libraries of that.
pub(crate) fn program(name: &str) -> Command {
    let root = assets().join("root");
    let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu"));
    let folders = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder).join(name));
    command.arg(folders.iter().find(|path| path.exists()).expect("a program of that name"));
    command
}

/// Copies an image to a registry.
pub(crate) fn push(registry: &Registry, from: &str, to: &str) {
    must(
        program("skopeo")
            .args(["--insecure-policy", "copy", "--dest-creds", &Registry::credentials()])
            .arg("--dest-cert-dir")
            .arg(registry.cas())
            .arg(from)
            .arg(format!("docker://{to}")),
    );
}

/// What a command prints that has to succeed.
pub(crate) fn must(command: &mut Command) -> String {
    let output = command.output().expect("a program that is there");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// What runs a machine's instructions: this machine's processor, where it has virtual machines of its own. Without that,
/// `/dev/kvm` can be one that emulates more slowly than QEMU does, and not all of it.
fn accelerator() -> &'static str {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_own = processors.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
    if has_own && Path::new("/dev/kvm").exists() { "kvm:tcg" } else { "tcg" }
}

/// A machine that is booting. It ends with this value.
pub(crate) struct VirtualMachine {
    qemu: Child,
    directory: TempDir,
    started: Instant,
}

impl VirtualMachine {
    /// Turns a machine on that was never booted. Its firmware has this pointer config, and it reaches [`HOST`].
    pub(crate) fn boot(pointer: &Path) -> Self {
        let network = ["-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host,romfile="];
        Self::boot_with(pointer, &network)
    }

    /// Turns a machine on with these flags of QEMU, which have its network.
    pub(crate) fn boot_with(pointer: &Path, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let assets = assets();
        let file = |name: &str| assets.join(name).display().to_string();
        let console = directory.path().join("console").display().to_string();
        let qemu = Command::new(assets.join("qemu"))
            .args(["-machine", &format!("q35,accel={}", accelerator()), "-cpu", "max"])
            .args(["-m", "1024", "-smp", "2", "-display", "none"])
            .args(["-no-reboot", "-nodefaults", "-no-user-config"])
            .args(["-kernel", &file("kernel"), "-initrd", &file("initramfs")])
            .args(["-append", include_str!("../../machine/kernel-arguments").trim_end()])
            // What is written goes to a file that QEMU removes.
            .arg("-drive")
            .arg(format!("file={},format=raw,if=virtio,snapshot=on", file("disk")))
            .args(flags)
            .args(["-device", "virtio-rng-pci"])
            .arg("-fw_cfg")
            .arg(format!("name=opt/com.coreos/config,file={}", pointer.display()))
            .args(["-serial", &format!("file:{console}")])
            .stdin(Stdio::null())
            .spawn()
            .expect("QEMU");
        Self { qemu, directory, started: Instant::now() }
    }

    /// All that it has said on its serial console.
    pub(crate) fn console(&self) -> String {
        let text = fs::read(self.directory.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\r', "")
    }

    /// Waits until `ask` gives something, at most for as long as the machine runs.
    pub(crate) fn wait_for<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        loop {
            // Before the question, so that the last word of a machine is heard.
            let ended = self.qemu.try_wait().expect("a child of this process");
            if let Some(answer) = ask(self) {
                return answer;
            }
            if let Some(status) = ended {
                panic!("it ended with {status}, before {what}:\n{}", self.console());
            }
            let waited = self.started.elapsed();
            assert!(waited < LONGEST_BOOT, "waited in vain for {what}:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until it restarts, which turns it off: a machine starts with other kernel arguments only as another value.
    pub(crate) fn restarts(mut self) {
        let ended: ExitStatus = self
            .wait_for("it to restart", |it| it.qemu.try_wait().expect("a child of this process"));
        assert!(ended.success(), "{ended}:\n{}", self.console());
    }

    /// Waits until it has turned itself off, and returns what its unit reported.
    pub(crate) fn report(mut self) -> Vec<String> {
        let ended: ExitStatus = self.wait_for("it to turn itself off", |it| {
            it.qemu.try_wait().expect("a child of this process")
        });
        let console = self.console();
        assert!(ended.success(), "{ended}:\n{console}");
        let lines = console.lines().filter_map(|line| line.split_once("report: "));
        let lines: Vec<_> = lines.map(|(_, said)| said.to_owned()).collect();
        assert_eq!(lines.last().map(String::as_str), Some("end"), "{console}");
        println!("booted and reported in {:.0?}", self.started.elapsed());
        lines
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing left to do.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
