//! Requests of administrators, and requests to cert-manager issuers.

pub(crate) mod administrator;
pub(crate) mod ca;
pub(crate) mod issuer_ref;
