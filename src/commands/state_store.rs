//! What commands do with what a state directory or a cluster keeps: certificates, pointer configs and tokens.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use model::access::Records;
use model::access::rotation::{Issued, PointerToken};
use model::pointer_config::{Assessment, LeftAlone, PointerConfig};
use pki::{Certificate, CertificateState, Policy, StoredPair};
use time::OffsetDateTime;

use super::certs::exposure::Worth;

/// A state directory or a cluster, as [`Place::open`](super::place::Place::open) chooses.
pub(crate) trait StateStore {
    /// What there is now. The pools of a directory are those of `manifests`, where those are given.
    fn observe(&self, manifests: Option<&Path>) -> Result<Seen>;

    /// Returns `true` if each right to read is granted by itself.
    fn has_separate_rights(&self) -> bool;

    /// What strangers can read in the configs of pools that are not enforced, and what has no effect in
    /// configs. Those of a directory are in `manifests`.
    fn worth(&self, manifests: Option<&Path>) -> Result<Worth>;

    /// What is known of tokens.
    fn records(&self) -> Result<Records>;

    /// Changes what is known of tokens, by a rule that sees what there is; where somebody else came first,
    /// again.
    fn change_tokens(&self, change: &ChangeTokens<'_>) -> Result<()>;

    /// Makes a new serving pair, with `ca` a new authority first, or has its keeper make them. With
    /// `force` even where machines are locked out. Fails with who would be locked out, if it is for that.
    fn rotate(&self, ca: bool, force: bool, policy: &Policy, now: OffsetDateTime) -> Result<()>;

    /// Takes CAs out: of the bundle, pointer configs, the chain and the stored keys, for ever. Each is
    /// named by a file with its certificate, its SHA-256 fingerprint or its common name. Without `yes`
    /// it only says who could not boot any more, and fails.
    fn distrust(
        &self,
        named: &[String],
        yes: bool,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<()>;
}

/// A rule for tokens.
pub(crate) type ChangeTokens<'a> = dyn Fn(&mut Issued, &mut Records) -> Result<()> + 'a;

/// Whoever looks at certificates need not have a right to all else: `Ok(Err(..))` is what to tell of that.
pub(super) fn unless_forbidden<T>(store: &dyn StateStore, read: Result<T>) -> Result<Result<T>> {
    if store.has_separate_rights() { Ok(read) } else { read.map(Ok) }
}

/// What a store holds.
pub(crate) struct Seen {
    pub(super) place: String,
    pub(super) observed: CertificateState,
    pub(super) pointers: Vec<(String, Vec<u8>)>,
    /// Those of them that no machine is made from, as an administrator says.
    pub(super) unused: BTreeSet<String>,
    /// Files with keys that others than their owner can read.
    pub(super) open_files: Vec<String>,
    /// The pools that have a config, empty where they are not known.
    pub(super) pools: BTreeSet<String>,
    /// What is wrong with files that the server could not read when it is started again.
    pub(super) unreadable: Vec<String>,
    /// Where the signing CA and the serving pair are.
    pub(super) files: [String; 2],
}

impl Seen {
    /// What a server would send, leaf first; empty without a serving pair.
    ///
    /// # Errors
    /// There is a serving pair that no server can serve.
    pub(super) fn chain(&self) -> Result<Vec<Certificate>> {
        let chain = self.observed.serving.as_ref().map(StoredPair::served_chain).transpose();
        let [_, serving] = &self.files;
        Ok(chain.context(serving.clone())?.unwrap_or_default())
    }

    /// What the pointer configs carry that a rotation of tokens looks after.
    pub(super) fn carriers(&self) -> Vec<PointerToken> {
        let (trusted, known) = (self.observed.trusted(), self.observed.known());
        let used = self.pointers.iter().filter(|(name, _)| !self.unused.contains(name));
        used.flat_map(|(name, text)| {
            PointerConfig::read(text).carriers(name, &trusted, &known, true)
        })
        .collect()
    }

    /// Why a pointer config that names authorities trusts none that is known to be the server's, or
    /// is not looked at.
    pub(super) fn stranger(&self, pointer: &PointerConfig<'_>) -> Option<LeftAlone> {
        match pointer.assess(&self.observed.trusted(), &self.observed.known()) {
            Assessment::LeftAlone(
                reason @ (LeftAlone::Foreign | LeftAlone::NameOnly | LeftAlone::TooLarge),
            ) => Some(reason),
            _ => None,
        }
    }
}
