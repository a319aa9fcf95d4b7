//! Tokens of `serve`, in the state directory.
//!
//! ```text
//! tokens.json       the tokens in pointer configs, for their writers
//! access.json       records of all tokens: hashes, pools, times
//! ```

use std::collections::BTreeMap;
use std::ops::ControlFlow::{Break, Continue};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use files::bounded::read_if_there;
use files::error::FileError;
use files::replace::{self, PRIVATE, Replacement};
use model::access::rotation::{
    Issued, MAX_STEPS, NextAction, ObservedTokens, PointerToken, PointerWrite, Reason,
    RotationPolicy, Write, current_records, next,
};
use model::access::{AccessMode, Records, Token};
use model::pointer_config::PointerConfig;
use time::OffsetDateTime;

use super::pointer_files::PointerFile;
use super::state_directory::{Stamps, StateDirectory, Trust};
use super::state_error::StateError;

#[derive(Debug)]
pub(crate) struct TokensReconciled {
    /// Reasons of the writes, in their order.
    pub done: Vec<Reason>,
    /// Faults for administrators, one line each.
    pub attention: Vec<String>,
    /// Time at which something becomes due without any change, if ever.
    pub requeue_at: Option<OffsetDateTime>,
    pub records: Records,
}

impl StateDirectory {
    pub(super) fn issued_path(&self) -> PathBuf {
        self.path().join(Issued::FILE)
    }

    pub(super) fn records_path(&self) -> PathBuf {
        self.path().join(Records::FILE)
    }

    /// Records of tokens, empty if there are none.
    pub(crate) fn records(&self) -> Result<Records, StateError> {
        read_json(&self.records_path(), Records::read)
    }

    /// Records of tokens with the present evidence, for the case that they cannot be written.
    pub(crate) fn current_records(
        &self,
        pools: &BTreeMap<String, AccessMode>,
        now: OffsetDateTime,
    ) -> Result<Records, StateError> {
        Ok(current_records(&self.observe_tokens(pools)?, now))
    }

    pub(crate) fn issued(&self) -> Result<Issued, StateError> {
        read_json(&self.issued_path(), Issued::read)
    }

    /// Stamps of the files that tokens depend on. `None` while a stamp is too new to detect a later change.
    pub(crate) fn token_stamps(&self, now: SystemTime) -> Option<Stamps> {
        let own = [self.issued_path(), self.records_path(), self.bundle_path()];
        let stamps = Stamps::of(own, self.pool_pointer_paths().unwrap_or_default());
        stamps.are_settled(now).then_some(stamps)
    }

    pub(crate) fn fresh_token(&self) -> Result<Token, StateError> {
        let reason = "the system has no randomness for a new token";
        Ok(Token::generate().map_err(|_| FileError::other(self.path(), reason))?)
    }

    /// Changes tokens and records by `change`. Waits for another process.
    pub(crate) fn change_tokens<E: From<StateError>>(
        &self,
        change: impl FnOnce(&mut Issued, &mut Records) -> Result<(), E>,
    ) -> Result<(), E> {
        let _lock = self.lock()?;
        self.expect_readable()?;
        let (mut issued, mut records) = (self.issued()?, self.records()?);
        change(&mut issued, &mut records)?;
        self.write_records(&records)?;
        self.write_issued(&issued)?;
        Ok(())
    }

    /// Applies due steps for the tokens of `pools` with their modes. `accept` is called with the records before pointer
    /// configs embed new tokens.
    pub(crate) fn reconcile_tokens(
        &self,
        pools: &BTreeMap<String, AccessMode>,
        policy: &RotationPolicy,
        now: OffsetDateTime,
        accept: &mut dyn FnMut(&Records),
    ) -> Result<TokensReconciled, StateError> {
        let _lock = self.lock()?;
        let mut done = Vec::new();
        let (requeue_at, attention, records) = self.converge(MAX_STEPS + pools.len(), || {
            let state = self.observe_tokens(pools)?;
            match next(&state, policy, now, &self.fresh_token()?) {
                NextAction::Settled { until, attention } => {
                    Ok(Break((until, attention, state.records)))
                }
                NextAction::Write(because, write) => {
                    match write {
                        Write::Issued(issued) => self.write_issued(&issued)?,
                        Write::Records(records) => self.write_records(&records)?,
                        Write::Pointers(writes) => {
                            accept(&state.records);
                            self.write_tokens(&writes)?;
                        }
                    }
                    done.push(because);
                    Ok(Continue(()))
                }
            }
        })?;
        Ok(TokensReconciled { done, attention, requeue_at, records })
    }

    fn observe_tokens(
        &self,
        pools: &BTreeMap<String, AccessMode>,
    ) -> Result<ObservedTokens, StateError> {
        let pointers = self.embedded_tokens()?;
        let (issued, records) = (self.issued()?, self.records()?);
        Ok(ObservedTokens { issued, records, pointers, pools: pools.clone() })
    }

    /// The pointer configs of pools with their tokens. Those of single machines have tokens that are not rotated.
    fn embedded_tokens(&self) -> Result<Vec<PointerToken>, StateError> {
        let Trust { trusted, known, .. } = self.trust()?;
        let mut pointers = Vec::new();
        let files = self.pointers()?.into_iter();
        for PointerFile { path, text } in files.filter(|file| !self.is_of_machine(&file.path)) {
            let config = PointerConfig::read(&text);
            pointers.extend(config.embedded_tokens(
                self.pointer_name(&path)?,
                &trusted,
                &known,
                true,
            ));
        }
        Ok(pointers)
    }

    /// Writes all of them; a failure does not prevent the others.
    fn write_tokens(&self, writes: &[PointerWrite]) -> Result<(), StateError> {
        let (mut files, mut failure) = (Vec::new(), Ok(()));
        for write in writes {
            let path = self.pointers_path().join(&write.name);
            match read_if_there(&path) {
                Ok(present) => {
                    let present = present.unwrap_or_default();
                    // A config that was changed meanwhile is observed again.
                    let contents = PointerConfig::read(&present).embed(write);
                    let file =
                        contents.map(|contents| Replacement { path, contents, mode: PRIVATE });
                    files.extend(file);
                }
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        let replaced = replace::replace_all(&self.pointers_path(), &files, self.reader());
        Ok(replaced.into_iter().fold(failure, Result::and)?)
    }

    fn write_issued(&self, issued: &Issued) -> Result<(), StateError> {
        self.write_json(&self.issued_path(), issued)
    }

    fn write_records(&self, records: &Records) -> Result<(), StateError> {
        self.write_json(&self.records_path(), records)
    }

    pub(super) fn write_json(
        &self,
        path: &Path,
        value: &impl serde::Serialize,
    ) -> Result<(), StateError> {
        let json = serde_json::to_vec_pretty(value).map_err(FileError::at(path))?;
        Ok(self.replace(path, &[&json[..], b"\n"].concat(), PRIVATE)?)
    }
}

fn read_json<T: Default>(
    path: &Path,
    read: impl Fn(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<T, StateError> {
    let Some(json) = read_if_there(path)? else { return Ok(T::default()) };
    Ok(read(&json).map_err(FileError::at(path))?)
}
