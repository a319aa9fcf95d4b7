//! What the subcommands do, from plain settings.

pub mod certs;
pub mod controller;
