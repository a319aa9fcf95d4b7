//! The bootstrap token: files of a mounted secret, followed as they rotate.

use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use crate::source::watch::{Follower, Look};

/// What the token's directory holds.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// `token`
    pub(super) token: String,
    /// `ca.crt`, PEM; `None` where it is not there.
    pub(super) authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The last token that could be read, and what is wrong now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TokenState {
    pub(super) last_good: Option<Token>,
    pub(super) problem: Option<String>,
}

/// Reads the token's directory after each change.
#[derive(Debug)]
pub struct FollowToken {
    pub(super) directory: PathBuf,
    pub(super) state: watch::Sender<TokenState>,
}

impl FollowToken {
    /// The folders whose changes matter.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        vec![self.directory.clone()]
    }

    /// Reads the token after each change, until `follower` is stopped.
    pub fn follow(self, follower: Follower) {
        follower.follow(|being_written| {
            if being_written(&self.directory.join("token")) {
                return Look::Unsettled;
            }
            self.look();
            Look::Settled
        });
    }

    pub(super) fn look(&self) {
        let read = read(&self.directory);
        self.state.send_if_modified(|state| {
            let next = match read {
                Ok(token) => TokenState { last_good: Some(token), problem: None },
                Err(problem) => {
                    TokenState { last_good: state.last_good.clone(), problem: Some(problem) }
                }
            };
            let changed = *state != next;
            *state = next;
            changed
        });
    }
}

fn read(directory: &Path) -> Result<Token, String> {
    let path = directory.join("token");
    let problem = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let token = std::fs::read_to_string(&path).map_err(|error| problem(&error))?;
    let token = token.trim_end();
    if token.is_empty() {
        return Err(problem(&"is empty"));
    }
    let path = directory.join("ca.crt");
    let authorities = match std::fs::read(&path) {
        Ok(pem) => Some(pem),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    Ok(Token { token: token.to_owned(), authorities })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_cannot_be_read_leaves_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let (state, states) = watch::channel(TokenState::default());
        let follow = FollowToken { directory: folder.path().to_owned(), state };
        follow.look();
        assert!(states.borrow().problem.as_ref().unwrap().contains("token: "));
        assert_eq!(states.borrow().last_good, None);

        std::fs::write(folder.path().join("token"), "abc.def\n").unwrap();
        follow.look();
        let token = Token { token: "abc.def".to_owned(), authorities: None };
        assert_eq!(*states.borrow(), TokenState { last_good: Some(token.clone()), problem: None });

        std::fs::write(folder.path().join("token"), "\n").unwrap();
        follow.look();
        assert_eq!(states.borrow().last_good, Some(token));
        assert!(states.borrow().problem.as_ref().unwrap().contains("is empty"));
    }
}
