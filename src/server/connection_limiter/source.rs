//! Who a connection is counted for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where connections come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A port with TLS.
    Tls,
    /// A port without.
    Plain,
}

/// Who is counted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An IPv4 address, also one that is written as IPv6.
    V4(Ipv4Addr),
    /// The network part of an IPv6 address: a host is usually given a whole network.
    V6(u128),
    /// All balancers, of which a connection is until it says for whom, and after where it is its own.
    Balancer,
}

impl From<SocketAddr> for Source {
    fn from(peer: SocketAddr) -> Self {
        match peer.ip().to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address.to_bits() >> 64),
        }
    }
}

/// A source, or sources that are likely to be one client's: providers assign IPv6 networks of 56 and
/// 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::server) enum Group {
    Everyone,
    Network48(u128),
    Network56(u128),
    Source(Source),
}

impl Group {
    /// All groups that a source belongs to, the largest first.
    pub(super) fn of(source: Source) -> impl DoubleEndedIterator<Item = Self> + Clone {
        std::iter::once(Self::Everyone).chain(Self::within_everyone(source))
    }

    /// The same, without the one of everyone.
    pub(in crate::server) fn within_everyone(
        source: Source,
    ) -> impl DoubleEndedIterator<Item = Self> + Clone {
        let networks = match source {
            Source::V6(network) => {
                [Some(Self::Network48(network >> 16)), Some(Self::Network56(network >> 8))]
            }
            Source::V4(_) | Source::Balancer => [None, None],
        };
        networks.into_iter().flatten().chain(std::iter::once(Self::Source(source)))
    }
}
