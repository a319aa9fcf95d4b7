//! Keeps the boot ledger on disk across restarts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use common::sync::lock;
use files::bounded;
use files::owners::Reader;
use files::replace::{self, PRIVATE};
use model::ledger::{Ledger, Machine};
use telemetry::conditions::Status;
use telemetry::faults;

use crate::source::manifest::check_json;

/// Minimum time between two writes: each writes everything, some 5 MB when it is full, and a killed process loses no
/// more than this.
const PAUSE: Duration = Duration::from_secs(30);

pub(crate) struct LedgerFile {
    directory: PathBuf,
    ledger: Ledger,
    status: Status,
    /// Number of the ledger's changes that are on disk. Locked while it is written.
    written: Mutex<u64>,
}

impl LedgerFile {
    /// Reads the ledger of an earlier server in `directory`. An unreadable file is reported, and overwritten later.
    pub(crate) fn open(directory: &Path, ledger: Ledger, status: Status) -> Self {
        let written = Mutex::default();
        let mut file = Self { directory: directory.to_owned(), ledger, status, written };
        match read(&file.path()) {
            Ok(machines) => file.ledger.absorb(machines),
            Err(error) => {
                let path = file.path();
                tracing::error!(
                    path = %path.display(),
                    %error,
                    fix = "copy the file if you need it: the server overwrites it",
                    "cannot read the boot ledger, starting an empty one"
                );
            }
        }
        file.written = Mutex::new(file.ledger.changes());
        file
    }

    fn path(&self) -> PathBuf {
        self.directory.join(Ledger::FILE)
    }

    /// Writes changes periodically, forever.
    pub(crate) async fn flush(&self) {
        let mut reported = 0;
        loop {
            tokio::time::sleep(PAUSE).await;
            tokio::task::block_in_place(|| self.save());
            let discarded = self.ledger.discarded();
            if discarded > reported {
                let machines = discarded - reported;
                tracing::warn!(
                    machines,
                    fix = "find the oldest machines in the log; the ledger keeps the last 10,000",
                    "boot ledger is full, removed the oldest machines"
                );
                reported = discarded;
            }
        }
    }

    pub(crate) fn save(&self) {
        let mut written = lock(&self.written);
        let changes = self.ledger.changes();
        if *written == changes {
            return;
        }
        let saved = serde_json::to_vec(&self.ledger.machines()).map_err(|error| error.to_string());
        let saved = saved.and_then(|json| {
            replace::create_directory(&self.directory, Reader::Directory)
                .and_then(|()| replace::replace(&self.path(), &json, PRIVATE, Reader::Itself))
                .map_err(|error| error.to_string())
        });
        let reason = saved.err();
        if reason.is_none() {
            *written = changes;
        }
        faults::BOOT_LEDGER.report(&self.status, reason.as_deref());
    }
}

fn read(path: &Path) -> io::Result<Vec<Machine>> {
    let bytes = match bounded::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let text = str::from_utf8(&bytes).map_err(io::Error::other)?;
    check_json(text).map_err(io::Error::other)?;
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use model::ledger::Failed;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn what_was_noted_outlasts_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let ledger = Ledger::default();
            (LedgerFile::open(directory.path(), ledger.clone(), Status::default()), ledger)
        };
        let (file, ledger) = open();
        file.save();
        assert!(!directory.path().join("ledger.json").exists(), "nothing is new");
        let noon = datetime!(2026-11-21 12:00 UTC);
        ledger.handshake_failed("192.0.2.1".parse().unwrap(), Failed::Untrusted, noon);
        file.save();
        let (_, again) = open();
        assert_eq!(again.machines(), ledger.machines());
        assert_eq!(again.machines().len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_or_written_stops_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.json");
        let many = format!("[{}0]", "0,".repeat(3_000_000));
        for text in ["", "[{\"address\": \"x\"}]", "\u{0}", &many] {
            std::fs::write(&path, text).unwrap();
            let ledger = Ledger::default();
            LedgerFile::open(directory.path(), ledger.clone(), Status::default());
            assert!(ledger.machines().is_empty());
        }
        let status = Status::default();
        let ledger = Ledger::default();
        let taken = directory.path().join("taken");
        std::fs::write(&taken, "a file where the folder should be").unwrap();
        let file = LedgerFile::open(&taken, ledger.clone(), status.clone());
        let noon = datetime!(2026-11-21 12:00 UTC);
        ledger.handshake_failed("192.0.2.1".parse().unwrap(), Failed::Timeout, noon);
        file.save();
        assert!(
            status.degraded.lines()[0].starts_with("boot ledger: "),
            "{:?}",
            status.degraded.lines()
        );
        std::fs::remove_file(&taken).unwrap();
        file.save();
        assert!(status.degraded.lines().is_empty());
        assert!(taken.join("ledger.json").exists());
    }
}
