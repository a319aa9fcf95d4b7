//! Beside the real cert-manager, on a real API server: its controllers make the requests and keep the secrets.

mod cmpv2;
mod issuer;
mod itself;
mod signing_requests;
mod site;
mod truststores;
