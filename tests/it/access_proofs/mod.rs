//! Where a request comes from and what it brings: networks, headers of every kind, and tokens that
//! another issuer has signed.

mod headers;
mod networks;
mod signed;

use std::net::{IpAddr, Ipv4Addr};

const fn loopback(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}
