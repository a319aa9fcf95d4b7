//! Where a request comes from and what it brings: networks, headers of every kind, and tokens that
//! another issuer has signed.

mod headers;
mod networks;
mod signed;
