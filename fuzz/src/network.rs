//! Networks as flags have them.

use std::net::IpAddr;

use model::access::{Allowed, Network, NetworkError, Networks};

use super::text;

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = text(data);
    match text.parse::<Network>() {
        Ok(network) => assert_eq!(network.to_string().parse(), Ok(network)),
        // What is said to be meant is a network.
        Err(NetworkError::LooseBits { expected }) => {
            assert_eq!(expected.to_string().parse(), Ok(expected));
        }
        Err(_) => {}
    }
    if let (Ok(allowed), Some(address)) = (text.parse::<Allowed>(), address(text)) {
        let Allowed { pool, network } = allowed.clone();
        let pool = pool.unwrap_or_else(|| "any".to_owned());
        assert_eq!(Networks::new([allowed]).allow(&pool, address), network.contains(address));
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(_) => address,
        };
        assert_eq!(network.contains(mapped), network.contains(address));
    }
}

/// The address in a network's text, which is in the network.
fn address(text: &str) -> Option<IpAddr> {
    let network = text.rsplit('=').next()?;
    network.split('/').next()?.parse().ok()
}
