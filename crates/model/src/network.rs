//! Networks of addresses.
//!
//! An IPv4-mapped IPv6 address counts as IPv4, in a network and in an address that it may contain: the form depends on
//! the listener's socket, not on the machine.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// A network such as `192.0.2.0/24` or `2001:db8::/32`. A single address is one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

/// Reasons why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The text is neither an address nor a network.
    #[error("expected an address, or a network such as 192.0.2.0/24 or 2001:db8::/32")]
    NoNetwork,
    /// The address has bits beyond the prefix length, so that either is a mistake.
    #[error("expected {expected}, or an address without a length")]
    LooseBits {
        /// Network that contains the address.
        expected: Network,
    },
    /// The pool before `=` is missing.
    #[error("expected POOL=NETWORK")]
    NoPool,
}

impl Network {
    /// Returns `true` if one of `networks` contains the address, or there are none.
    pub(crate) fn allow(networks: &[Self], address: IpAddr) -> bool {
        networks.is_empty() || networks.iter().any(|network| network.contains(address))
    }

    /// Returns `true` if the network contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse().map_err(|_| NetworkError::NoNetwork)?,
        };
        let network = canonical(network);
        if network.trunc() == network {
            Ok(Self(network))
        } else {
            Err(NetworkError::LooseBits { expected: Self(network.trunc()) })
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Converts an IPv4-mapped network (`::ffff:192.0.2.0/120`) to IPv4.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(written) = network else { return network };
    let address = written.addr().to_ipv4_mapped();
    let as_ipv4 = address
        .zip(written.prefix_len().checked_sub(96))
        .and_then(|(address, length)| Ipv4Net::new(address, length).ok());
    as_ipv4.map_or(network, IpNet::V4)
}
