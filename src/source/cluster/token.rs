//! The bootstrap token: files of a mounted Secret, followed as they rotate.

use std::path::{Path, PathBuf};

use files::bounded::{self, read_if_there};
use files::watch::{DirectoryWatch, Scanned};

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) token: String,
    /// Contents of the file `ca.crt` in PEM; `None` if it does not exist.
    pub(super) cas: Option<Vec<u8>>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The last readable token, and the present problem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BootstrapTokenState {
    pub(super) last_good: Option<Token>,
    pub(super) problem: Option<String>,
}

impl BootstrapTokenState {
    /// The state after another read.
    fn next(&self, read: Result<Token, String>) -> Self {
        match read {
            Ok(token) => Self { last_good: Some(token), problem: None },
            Err(problem) => Self { last_good: self.last_good.clone(), problem: Some(problem) },
        }
    }
}

#[derive(Debug)]
pub(super) struct TokenFiles {
    directory: PathBuf,
    watch: DirectoryWatch,
    state: BootstrapTokenState,
}

impl TokenFiles {
    /// Reads the token, and starts to follow it. Must be called within a runtime.
    pub(super) fn open(directory: PathBuf) -> Self {
        let watch = DirectoryWatch::new(vec![directory.clone()]);
        let state = BootstrapTokenState::default().next(read(&directory));
        Self { directory, watch, state }
    }

    pub(super) fn state(&self) -> &BootstrapTokenState {
        &self.state
    }

    /// Waits for a change of the token or its problem. It is cancel safe: no change is lost.
    pub(super) async fn changed(&mut self) {
        let Self { directory, watch, state } = self;
        let before = state.clone();
        while *state == before {
            watch.changed().await;
            watch.scan(|being_written| {
                if being_written(&directory.join("token")) {
                    return Scanned::UNSETTLED;
                }
                *state = state.next(read(directory));
                Scanned::SETTLED
            });
        }
    }
}

/// Reads the token in a directory.
pub(super) fn read(directory: &Path) -> Result<Token, String> {
    let path = directory.join("token");
    let problem = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let token = bounded::read_text(&path).map_err(|error| problem(&error))?;
    let token = token.trim_end();
    if token.is_empty() {
        return Err(problem(&"is empty"));
    }
    let path = directory.join("ca.crt");
    let cas = read_if_there(&path).map_err(|error| error.to_string())?;
    Ok(Token { token: token.to_owned(), cas })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_that_cannot_be_read_leaves_the_last_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = TokenFiles::open(directory.path().to_owned());
        assert!(files.state().problem.as_ref().unwrap().contains("token: "));
        assert_eq!(files.state().last_good, None);

        std::fs::write(directory.path().join("token"), "abc.def\n").unwrap();
        files.changed().await;
        let token = Token { token: "abc.def".to_owned(), cas: None };
        let state = BootstrapTokenState { last_good: Some(token.clone()), problem: None };
        assert_eq!(*files.state(), state);

        std::fs::write(directory.path().join("token"), "\n").unwrap();
        files.changed().await;
        assert_eq!(files.state().last_good, Some(token));
        assert!(files.state().problem.as_ref().unwrap().contains("is empty"));
    }
}
