//! Sources for which connections are counted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Port of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tls,
    /// Port without TLS.
    Plain,
}

/// Clients that count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// An IPv4 address, also if it is mapped to IPv6.
    V4(Ipv4Addr),
    /// The /64 network of an IPv6 address: a host usually has a whole network.
    V6(u128),
    /// All balancers, for connections before their PROXY header.
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

/// A source, or sources that are likely to be one client's: providers assign IPv6 networks of 56 and 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::server) enum Group {
    Everyone,
    Network48(u128),
    Network56(u128),
    Source(Source),
}

impl Group {
    /// All groups of a source, the largest first.
    pub(super) fn of(source: Source) -> impl DoubleEndedIterator<Item = Self> + Clone {
        std::iter::once(Self::Everyone).chain(Self::within_everyone(source))
    }

    /// All groups of a source except [`Group::Everyone`].
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
