//! Caches the records of tokens on disk, so that a server can start and decide on access while the API server is
//! unavailable.

use std::path::{Path, PathBuf};

use files::bounded;
use files::error::FileError;
use files::owners::Reader;
use files::replace::{self, PRIVATE};
use model::access::Records;
use telemetry::{Reporting, faults};

use crate::serving::pipeline::publish::{Published, Subscription};
use crate::store::newest;

/// Directory with a file of the last state.
#[derive(Debug, Clone)]
pub(crate) struct TokenCache(PathBuf);

impl TokenCache {
    /// Names the file in this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// The last state, `None` if there is none, or it is unreadable.
    pub(crate) fn load(&self) -> Option<Records> {
        let path = self.path();
        let records = match bounded::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
            Ok(json) => Records::read(&json).map_err(|error| error.to_string()),
        };
        let warn = |error: &String| {
            tracing::warn!(
                path = %path.display(),
                %error,
                fix = "remove the file; the server reads the tokens from the cluster",
                "cannot read the cached tokens"
            );
        };
        records.inspect_err(warn).ok()
    }

    /// Writes each newest state, forever.
    pub(crate) async fn flush(
        self,
        published: Subscription,
        Reporting { metrics, status }: Reporting,
    ) {
        let mut saved = None;
        let save = |now: &Published| {
            if saved != now.records {
                now.records.as_ref().map_or(Ok(()), |records| self.save(records))?;
                saved.clone_from(&now.records);
            }
            Ok(())
        };
        newest::flush(faults::TOKEN_CACHE, published, &metrics, &status, save).await;
    }

    fn save(&self, records: &Records) -> Result<(), FileError> {
        let json = serde_json::to_vec(records)
            .map_err(|error| FileError { path: self.path(), error: error.into() })?;
        replace::create_directory(&self.0, Reader::Directory)?;
        replace::replace(&self.path(), &json, PRIVATE, Reader::Itself)
    }

    fn path(&self) -> PathBuf {
        self.0.join(Records::FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let cache = TokenCache::new(&directory.path().join("not/there"));
        assert_eq!(cache.load(), None);
        let known = Records { enforced: ["worker".to_owned()].into(), ..Records::default() };
        cache.save(&known).unwrap();
        assert_eq!(cache.load(), Some(known));
    }
}
