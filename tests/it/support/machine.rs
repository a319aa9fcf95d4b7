//! A machine that boots for the first time, simulated by a directory: the real Ignition runs its `fetch` and `files`
//! stages in it.
//!
//! Ignition is from Debian's package `ignition`, 2.14, in dracut's modules, unless another one is named. It reads only
//! spec 3, so that pointer configs of spec 2 cannot be used.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

use super::wait_for;

pub(crate) const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// Accounts of an operating system's image, as Ignition and the sample cluster require them.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
                      core:x:1000:1000:Administrator:/var/home/core:/bin/bash\n";
const SHADOW: &str = "root:*:19000:0:99999:7:::\ncore:*:19000:0:99999:7:::\n";
const GROUP: &str = "root:x:0:\ncore:x:1000:\n";
const GSHADOW: &str = "root:*::\ncore:!::\n";
const HOSTS: &str = "127.0.0.1 localhost\n";

/// A machine's disk, with Ignition's state between its stages.
pub(crate) struct Machine {
    directory: TempDir,
    ignition: PathBuf,
}

impl Machine {
    /// Creates a machine with an operating system that has never booted.
    pub(crate) fn new() -> Self {
        assert!(Path::new(IGNITION).exists(), "no {IGNITION}: tests/run installs it");
        Self::with(Path::new(IGNITION))
    }

    /// Creates such a machine with this Ignition.
    pub(crate) fn with(ignition: &Path) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "Ignition gives files to other users, which takes root: run tests/run"
        );
        let directory = tempfile::tempdir().expect("a temporary folder");
        let machine = Self { directory, ignition: ignition.to_owned() };
        // Ignition writes a user's keys as that user, who needs access.
        fs::set_permissions(machine.directory.path(), Permissions::from_mode(0o755))
            .expect("chmod");
        for (path, text) in [
            ("etc/passwd", PASSWD),
            ("etc/shadow", SHADOW),
            ("etc/group", GROUP),
            ("etc/gshadow", GSHADOW),
            ("etc/hosts", HOSTS),
            ("etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=targeted\n"),
            ("etc/selinux/targeted/contexts/files/file_contexts", ""),
        ] {
            write(&machine.root().join(path), text, 0o644);
        }
        let home = machine.root().join("var/home/core");
        fs::create_dir_all(&home).expect("a folder");
        chown(&home, Some(1000), Some(1000)).expect("a new owner");
        // SELinux labels need the machine's policy: this replacement reads the list of paths and does nothing.
        let stand_in = machine.directory.path().join("bin/setfiles");
        write(&stand_in, "#!/bin/sh\nexec cat >/dev/null\n", 0o755);
        machine
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Path of the fetched config.
    pub(crate) fn fetched_config(&self) -> PathBuf {
        self.directory.path().join("config.json")
    }

    /// Boots from a pointer config: both stages must succeed.
    pub(crate) fn boot(&self, pointer: &str) {
        for stage in ["fetch", "files"] {
            let mut run = self.start(stage, pointer);
            let status = run.ended();
            assert!(status.success(), "the {stage} stage: {status}\n{}", run.log());
        }
    }

    /// Starts one stage and returns without waiting for it.
    pub(crate) fn start(&self, stage: &str, pointer: &str) -> Stage {
        let at = self.directory.path();
        let config = at.join("pointer.ign");
        fs::write(&config, pointer).expect("a writable folder");
        let log = at.join(format!("{stage}.log"));
        let file = File::create(&log).expect("a log file");
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new(&self.ignition)
            .args(["-platform", "file", "-stage", stage, "-log-to-stdout"])
            .arg("-root")
            .arg(self.root())
            .arg("-config-cache")
            .arg(self.fetched_config())
            .arg("-state-file")
            .arg(at.join("state.json"))
            .arg("-neednet")
            .arg(at.join("neednet"))
            .env("IGNITION_CONFIG_FILE", &config)
            .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", at.join("bin").display()))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("Ignition");
        Stage { child, log }
    }
}

/// A running stage, which ends when the value is dropped.
pub(crate) struct Stage {
    child: Child,
    log: PathBuf,
}

impl Stage {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("Ignition's log")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_none()
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("Ignition to end", || child.try_wait().expect("a child of this process"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().expect("a path in a folder")).expect("a folder");
    fs::write(path, text).expect("a writable folder");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}
