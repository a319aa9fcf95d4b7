//! Values by address, the least recently used last, with a maximum number in each IPv6 network.
//!
//! A client with an IPv6 address controls a whole /64 network, so that such a network has a share of the places.

use core::net::IpAddr;
use std::collections::HashMap;

use lru::LruCache;

/// Maximum number of values in an IPv6 /64 network.
pub(crate) const MAX_PER_NETWORK: usize = 1_000;

/// Values by address.
#[derive(Debug)]
pub(crate) struct ByNetwork<V> {
    values: LruCache<IpAddr, V>,
    /// Hosts of each IPv6 network with a value, the latest last.
    networks: HashMap<u64, Vec<IpAddr>>,
}

impl<V> Default for ByNetwork<V> {
    fn default() -> Self {
        Self { values: LruCache::unbounded(), networks: HashMap::new() }
    }
}

impl<V> ByNetwork<V> {
    /// The value at this address, which is `new` if there is none, marked as the latest; and true if another of its
    /// network was removed for it.
    pub(crate) fn at(&mut self, address: IpAddr, new: impl FnOnce() -> V) -> (&mut V, bool) {
        let mut had_to_go = false;
        if let Some(network) = network(address) {
            let hosts = self.networks.entry(network).or_default();
            if let Some(place) = hosts.iter().rposition(|other| *other == address) {
                hosts.remove(place);
            } else if hosts.len() == MAX_PER_NETWORK {
                self.values.pop(&hosts.remove(0));
                had_to_go = true;
            }
            hosts.push(address);
        }
        (self.values.get_or_insert_mut(address, new), had_to_go)
    }

    pub(crate) fn get(&self, address: IpAddr) -> Option<&V> {
        self.values.peek(&address)
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// All values, the latest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&IpAddr, &V)> {
        self.values.iter()
    }

    /// The least recently used value.
    pub(crate) fn oldest(&self) -> Option<&V> {
        self.values.peek_lru().map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, address: IpAddr) -> Option<V> {
        self.discard_host(address);
        self.values.pop(&address)
    }

    pub(crate) fn remove_oldest(&mut self) {
        if let Some((address, _)) = self.values.pop_lru() {
            self.discard_host(address);
        }
    }

    fn discard_host(&mut self, address: IpAddr) {
        let Some(network) = network(address) else { return };
        let Some(hosts) = self.networks.get_mut(&network) else { return };
        hosts.retain(|other| *other != address);
        if hosts.is_empty() {
            self.networks.remove(&network);
        }
    }

    /// Number of the remembered hosts of IPv6 networks, and of these networks.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> (usize, usize) {
        (self.networks.values().map(Vec::len).sum(), self.networks.len())
    }
}

/// Network of an IPv6 address.
fn network(address: IpAddr) -> Option<u64> {
    let IpAddr::V6(address) = address else { return None };
    u64::try_from(address.to_bits() >> 64).ok()
}

/// The IPv6 address of a host in a network.
#[cfg(test)]
pub(crate) fn whole(network: u64, host: u64) -> IpAddr {
    core::net::Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host)).into()
}
