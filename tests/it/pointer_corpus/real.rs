//! Ignition's fetch stage, on one pointer config.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::machine::IGNITION;
use crate::support::wait_for;

/// What every config of the sample cluster has, and no pointer config.
const OF_THE_POOL: &str = "/etc/ignition-machine-config-encapsulated.json";

/// A program.
pub(super) struct Ignition {
    pub(super) name: &'static str,
    program: PathBuf,
    /// The minor version of the newest spec 3 that it reads.
    newest: u64,
}

/// What came of a boot.
pub(super) struct Answer {
    /// Whether the machine got the config of its pool.
    pub(super) boots: bool,
    /// The end of what it said.
    pub(super) log: String,
}

impl Ignition {
    /// The packaged one, and the one that is built for the tests.
    pub(super) fn all() -> [Self; 2] {
        let built = std::env::var_os("IGNITION")
            .expect("IGNITION: run tests/run, or set it to what tests/ignition/install prints");
        [
            Self { name: "2.14", program: IGNITION.into(), newest: 3 },
            Self { name: "2.27", program: built.into(), newest: 6 },
        ]
    }

    /// Whether it knows the spec that a text declares. A text that declares none is for everybody.
    pub(super) fn reads(&self, text: &[u8]) -> bool {
        let version = serde_json::from_slice::<Value>(text).ok();
        let version = version.and_then(|it| Some(it["ignition"]["version"].as_str()?.to_owned()));
        let minor = version.and_then(|it| it.split('.').nth(1)?.parse::<u64>().ok());
        minor.is_none_or(|minor| minor <= self.newest || minor > 6)
    }

    /// Whether a machine boots from `file`.
    pub(super) fn boots(&self, file: &Path, directory: &Path) -> Answer {
        self.boots_in(file, directory, &[])
    }

    /// Whether a machine boots from `file` whose image has other files in the place of these.
    pub(super) fn boots_in(
        &self,
        file: &Path,
        directory: &Path,
        image: &[(&str, &Path)],
    ) -> Answer {
        let at = directory.join(self.name);
        fs::create_dir_all(at.join("root")).expect("a folder");
        let (log, cache) = (at.join("log"), at.join("config.json"));
        let output = File::create(&log).expect("a log file");
        let mut child = Command::new(&self.program)
            .args(["-platform", "file", "-stage", "fetch", "-log-to-stdout"])
            .arg("-root")
            .arg(at.join("root"))
            .arg("-config-cache")
            .arg(&cache)
            .arg("-state-file")
            .arg(at.join("state.json"))
            .arg("-neednet")
            .arg(at.join("neednet"))
            .env("IGNITION_CONFIG_FILE", file)
            .env("GOMAXPROCS", "1")
            .envs(image.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("Ignition");
        let said = || String::from_utf8_lossy(&fs::read(&log).expect("a log file")).into_owned();
        let ended = wait_for("Ignition to fetch, or to try again", || {
            if let Some(status) = child.try_wait().expect("a child of this process") {
                return Some(status.success());
            }
            // It goes on for ever.
            said().contains("attempt #2").then_some(false)
        });
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
        let is_of_pool = || fs::read_to_string(&cache).is_ok_and(|it| it.contains(OF_THE_POOL));
        let log = said();
        let lines: Vec<_> = log.lines().filter(|line| !line.starts_with("Full config")).collect();
        let log = lines[lines.len().saturating_sub(6)..].join("\n  ");
        Answer { boots: ended && is_of_pool(), log }
    }
}
