//! Restricts access to configs by the client's network.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::str::FromStr;

pub use crate::network::{Network, NetworkError};

/// Networks that are allowed, for all pools and for single pools.
#[derive(Debug, Clone, Default)]
pub struct Networks {
    general: Vec<Network>,
    by_pool: BTreeMap<String, Vec<Network>>,
}

impl Networks {
    /// Collects allowed networks. A pool with its own networks does not use the general ones.
    pub fn new(allowed: impl IntoIterator<Item = Allowed>) -> Self {
        let mut networks = Self::default();
        for Allowed { pool, network } in allowed {
            let list = match pool {
                Some(pool) => networks.by_pool.entry(pool).or_default(),
                None => &mut networks.general,
            };
            list.push(network);
        }
        networks
    }

    /// Returns `true` if a machine of `pool` may request from `address`. Without networks every address is allowed.
    #[must_use]
    pub fn allow(&self, pool: &str, address: IpAddr) -> bool {
        Network::allow(self.by_pool.get(pool).unwrap_or(&self.general), address)
    }

    /// Returns `true` if every address is allowed for every pool.
    pub fn is_empty(&self) -> bool {
        self.general.is_empty() && self.by_pool.is_empty()
    }

    /// Pools with their own networks, sorted.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.by_pool.keys().map(String::as_str)
    }
}

/// An allowed network, for all pools or for one: `192.0.2.0/24`, `worker=192.0.2.0/24`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Name of the pool, `None` for all.
    pub pool: Option<String>,
    /// Allowed network.
    pub network: Network,
}

impl FromStr for Allowed {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (pool, network) = match text.split_once('=') {
            Some(("", _)) => return Err(NetworkError::NoPool),
            Some((pool, network)) => (Some(pool.to_owned()), network),
            None => (None, text),
        };
        Ok(Self { pool, network: network.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(flags: &[&str]) -> Networks {
        Networks::new(flags.iter().map(|flag| flag.parse::<Allowed>().unwrap()))
    }

    fn allows(networks: &Networks, pool: &str, address: &str) -> bool {
        networks.allow(pool, address.parse().unwrap())
    }

    #[test]
    fn without_networks_anyone_may_ask() {
        for address in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(allows(&networks(&[]), "worker", address), "{address}");
        }
    }

    #[test]
    fn who_is_in_none_of_the_networks_may_not_ask() {
        let networks = networks(&["192.0.2.0/24", "198.51.100.7", "2001:db8::/32"]);
        for (address, is_allowed) in [
            ("192.0.2.0", true),
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("192.0.1.255", false),
            ("198.51.100.7", true),
            ("198.51.100.6", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
            ("::1", false),
        ] {
            assert_eq!(allows(&networks, "worker", address), is_allowed, "{address}");
        }
    }

    #[test]
    fn a_pool_with_networks_of_its_own_has_them_in_place_of_the_general_ones() {
        let both = networks(&["192.0.2.0/24", "worker=198.51.100.0/24", "worker=203.0.113.1"]);
        for (pool, address, is_allowed) in [
            ("worker", "198.51.100.1", true),
            ("worker", "203.0.113.1", true),
            ("worker", "192.0.2.1", false),
            ("master", "192.0.2.1", true),
            ("master", "198.51.100.1", false),
            ("Worker", "192.0.2.1", true),
        ] {
            assert_eq!(allows(&both, pool, address), is_allowed, "{pool} from {address}");
        }
        let one = networks(&["worker=198.51.100.0/24"]);
        assert!(!allows(&one, "worker", "192.0.2.1"));
        assert!(allows(&one, "master", "192.0.2.1"), "nothing was said about others");
        assert_eq!(both.pools().collect::<Vec<_>>(), ["worker"]);
    }

    #[test]
    fn ipv4_written_as_ipv6_counts_as_ipv4() {
        for flag in ["192.0.2.0/24", "::ffff:192.0.2.0/120", "::ffff:c000:200/120"] {
            let networks = networks(&[flag]);
            for (address, is_allowed) in [
                ("192.0.2.9", true),
                ("::ffff:192.0.2.9", true),
                ("192.0.3.9", false),
                ("::ffff:192.0.3.9", false),
                ("::192.0.2.9", false),
            ] {
                assert_eq!(allows(&networks, "worker", address), is_allowed, "{flag}: {address}");
            }
        }
        assert!(allows(&networks(&["::ffff:192.0.2.1"]), "worker", "192.0.2.1"));
        assert!(allows(&networks(&["::ffff:0.0.0.0/96"]), "worker", "192.0.2.1"));
        // All of IPv6 does not include IPv4-mapped addresses.
        let ipv6 = networks(&["::/0"]);
        assert!(allows(&ipv6, "worker", "2001:db8::1"));
        assert!(!allows(&ipv6, "worker", "::ffff:192.0.2.1"));
        assert!(!allows(&networks(&["0.0.0.0/0"]), "worker", "2001:db8::1"));
    }

    #[test]
    fn a_network_whose_address_says_more_than_its_length_is_refused_with_what_was_meant() {
        for (text, expected) in [
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("worker=192.0.2.7/24", "192.0.2.0/24"),
            ("192.0.2.1/0", "0.0.0.0/0"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::ffff:192.0.2.7/120", "192.0.2.0/24"),
            ("::ffff:192.0.2.0/64", "::/64"),
        ] {
            let error = text.parse::<Allowed>().unwrap_err().to_string();
            assert_eq!(error, format!("expected {expected}, or an address without a length"));
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "/24", "192.0.2.0/33", "2001:db8::/129", "192.0.2.0/-1", "192.0.2", "a=", "a=b=c"]
        {
            assert_eq!(text.parse::<Allowed>(), Err(NetworkError::NoNetwork), "{text:?}");
        }
        for text in ["192.0.2.0/24,198.51.100.0/24", " 192.0.2.0/24", "192.0.2.0/24 ", "fe80::1%1"]
        {
            assert_eq!(text.parse::<Allowed>(), Err(NetworkError::NoNetwork), "{text:?}");
        }
        assert_eq!("=192.0.2.0/24".parse::<Allowed>(), Err(NetworkError::NoPool));
    }

    #[test]
    fn a_network_reads_as_it_is_written() {
        for text in ["192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32", "0.0.0.0/0"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        assert_eq!("2001:db8::1".parse::<Network>().unwrap().to_string(), "2001:db8::1/128");
    }
}
