//! Common interface of commands to a state directory or a cluster: certificates, pointer configs and tokens.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use model::access::Records;
use model::access::rotation::{Issued, PointerToken};
use model::pointer_config::{Assessment, LeftAlone, PointerConfig};
use pki::{Certificate, CertificateState, Policy, StoredPair};
use time::OffsetDateTime;

use super::exposure::ConfigFindings;

/// A state directory or a cluster, as [`StateLocationFlags::open`](super::location::StateLocationFlags::open)
/// chooses.
pub(crate) trait StateStore {
    /// Observes the present state. The pools of a directory are those of `manifests`, if given.
    fn observe(&self, manifests: Option<&Path>) -> Result<ObservedState>;

    /// Returns `true` if permissions are granted for each kind of object.
    fn has_separate_rights(&self) -> bool;

    /// Secrets that unauthenticated clients can read in configs, and fields without effect. Configs of a directory are
    /// in `manifests`.
    fn config_findings(&self, manifests: Option<&Path>) -> Result<ConfigFindings>;

    fn records(&self) -> Result<Records>;

    /// Changes tokens and records by `change`, and retries after conflicts.
    fn change_tokens(&self, change: &ChangeTokens<'_>) -> Result<()>;

    /// Makes a new serving pair, with `ca` a new CA first, or requests them from the controller. With `force` even if
    /// machines are locked out. Otherwise fails with the machines that would be locked out.
    fn rotate(&self, ca: bool, force: bool, policy: &Policy, now: OffsetDateTime) -> Result<()>;

    /// Distrusts CAs for good: removes them from the bundle, pointer configs, the chain and the stored keys. Each is
    /// named by a file with its certificate, its SHA-256 fingerprint or its common name. Without `yes` it only reports
    /// the machines that could not boot any longer, and fails.
    fn distrust(
        &self,
        named: &[String],
        yes: bool,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<()>;
}

pub(crate) type ChangeTokens<'a> = dyn Fn(&mut Issued, &mut Records) -> Result<()> + 'a;

/// Separates errors of optional reads in a store with separate permissions: `Ok(Err(..))` is reported only.
pub(in crate::commands) fn unless_forbidden<T>(
    store: &dyn StateStore,
    read: Result<T>,
) -> Result<Result<T>> {
    if store.has_separate_rights() { Ok(read) } else { read.map(Ok) }
}

/// Observed state of a store.
pub(crate) struct ObservedState {
    pub(in crate::commands) place: String,
    pub(in crate::commands) observed: CertificateState,
    pub(in crate::commands) pointers: Vec<(String, Vec<u8>)>,
    /// Names of pointer configs that an administrator marked as unused.
    pub(in crate::commands) unused: BTreeSet<String>,
    /// Names of pointer configs of single machines, whose tokens are not rotated.
    pub(in crate::commands) of_machines: BTreeSet<String>,
    /// Files with secrets that too many users can read, one line each.
    pub(in crate::commands) open_files: Vec<String>,
    /// Pools that have a config, empty if they are not known.
    pub(in crate::commands) pools: BTreeSet<String>,
    /// Files that the server could not read after a restart, with remedies.
    pub(in crate::commands) unreadable: Vec<String>,
    /// Files or objects of the signing CA and the serving pair.
    pub(in crate::commands) files: [String; 2],
}

impl ObservedState {
    /// Chain that a server would send, leaf first; empty without a serving pair.
    ///
    /// # Errors
    /// No server can serve the pair.
    pub(in crate::commands) fn chain(&self) -> Result<Vec<Certificate>> {
        let chain = self.observed.serving.as_ref().map(StoredPair::served_chain).transpose();
        let [_, serving] = &self.files;
        Ok(chain.context(serving.clone())?.unwrap_or_default())
    }

    /// Tokens in the pointer configs that a rotation manages.
    pub(in crate::commands) fn embedded_tokens(&self) -> Vec<PointerToken> {
        let (trusted, known) = (self.observed.trusted(), self.observed.known());
        let used = self
            .pointers
            .iter()
            .filter(|(name, _)| !self.unused.contains(name) && !self.of_machines.contains(name));
        used.flat_map(|(name, text)| {
            PointerConfig::read(text).embedded_tokens(name, &trusted, &known, true)
        })
        .collect()
    }

    /// Reason why a pointer config with CAs trusts no known CA of the server, or is not judged.
    pub(in crate::commands) fn foreign_reason(
        &self,
        pointer: &PointerConfig<'_>,
    ) -> Option<LeftAlone> {
        match pointer.assess(&self.observed.trusted(), &self.observed.known()) {
            Assessment::LeftAlone(
                reason @ (LeftAlone::Foreign | LeftAlone::NameOnly | LeftAlone::TooLarge),
            ) => Some(reason),
            _ => None,
        }
    }
}
