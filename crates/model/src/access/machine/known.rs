//! Tokens of machines by their hashes.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;

use super::super::proof::{Credential, Refusal};
use super::super::token::{ShownToken, Token, TokenHash};
use crate::network::Network;

/// A machine, as its token opens a config.
#[derive(Debug, Clone)]
pub struct KnownMachine {
    /// Name of the machine.
    pub name: Arc<str>,
    /// Pool that the token opens.
    pub pool: String,
    /// Networks that it may be used from; empty for all.
    pub networks: Vec<Network>,
    /// True if the token was revoked or replaced.
    pub is_revoked: bool,
    /// True if the machine's object is missing, and may be back.
    pub is_missing: bool,
    /// True if the machine needs approval, regardless of its pool.
    pub needs_approval: bool,
}

/// Machines by the hashes of their tokens.
#[derive(Debug, Clone, Default)]
pub struct KnownMachines(Arc<HashMap<TokenHash, KnownMachine>>);

impl FromIterator<(TokenHash, KnownMachine)> for KnownMachines {
    fn from_iter<T: IntoIterator<Item = (TokenHash, KnownMachine)>>(machines: T) -> Self {
        Self(Arc::new(machines.into_iter().collect()))
    }
}

impl KnownMachines {
    /// The machine whose token a request has, and the token.
    pub fn find(&self, credential: Credential<'_>) -> Option<(&KnownMachine, ShownToken)> {
        let Credential::Bearer(credential) = credential else { return None };
        if self.0.is_empty() {
            return None;
        }
        let sha256 = Token::read(credential)?.hash();
        let known = self.0.get(&sha256)?;
        Some((known, ShownToken { machine: Arc::clone(&known.name), sha256 }))
    }
}

impl KnownMachine {
    /// Judges a request with the machine's token, regardless of the token's use.
    ///
    /// # Errors
    /// The reason why the token does not open the pool.
    pub fn judge(&self, pool: &str, address: IpAddr, is_private: bool) -> Result<(), Refusal> {
        if !is_private {
            Err(Refusal::PlainPort)
        } else if self.is_revoked {
            Err(Refusal::Revoked)
        } else if self.is_missing {
            Err(Refusal::MachineMissing)
        } else if self.pool != pool {
            Err(Refusal::OtherPool)
        } else if !Network::allow(&self.networks, address) {
            Err(Refusal::OtherNetwork)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_pool_over_tls_from_its_networks_alone() {
        let [token, gone, other] = [1, 2, 3].map(|byte| Token::new([byte; 32]));
        let machine = |networks: &[&str], is_revoked| KnownMachine {
            name: "n".into(),
            pool: "worker".to_owned(),
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            is_revoked,
            is_missing: false,
            needs_approval: false,
        };
        let known: KnownMachines = [
            (token.hash(), machine(&["192.0.2.0/24", "2001:db8::7"], false)),
            (gone.hash(), machine(&[], true)),
        ]
        .into_iter()
        .collect();
        let judge = |token: &Token, pool: &str, address: &str, is_private| {
            let credential = Credential::Bearer(token.as_str());
            let (machine, shown) = known.find(credential)?;
            assert_eq!(shown, ShownToken { machine: "n".into(), sha256: token.hash() });
            Some(machine.judge(pool, address.parse().unwrap(), is_private))
        };
        let opened = Some(Ok(()));
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"] {
            assert_eq!(judge(&token, "worker", address, true), opened, "{address}");
        }
        for (token, pool, address, is_private, refusal) in [
            (&token, "worker", "192.0.3.7", true, Refusal::OtherNetwork),
            (&token, "master", "192.0.2.7", true, Refusal::OtherPool),
            (&token, "worker", "192.0.2.7", false, Refusal::PlainPort),
            (&gone, "worker", "192.0.2.7", true, Refusal::Revoked),
        ] {
            assert_eq!(judge(token, pool, address, is_private), Some(Err(refusal)));
        }
        assert_eq!(judge(&other, "worker", "192.0.2.7", true), None);
        let away = |is_revoked| KnownMachine { is_missing: true, ..machine(&[], is_revoked) };
        let address = "192.0.2.7".parse().unwrap();
        assert_eq!(away(false).judge("worker", address, true), Err(Refusal::MachineMissing));
        assert_eq!(away(true).judge("worker", address, true), Err(Refusal::Revoked));
        let [missing, malformed] = [Credential::Missing, Credential::Malformed];
        for credential in [missing, malformed, Credential::Bearer("mcs-")] {
            assert!(known.find(credential).is_none());
        }
        let nobody = KnownMachines::default();
        let credential = Credential::Bearer(token.as_str());
        assert!(nobody.find(credential).is_none());
    }
}
