//! Who gets a config: tokens that pointer configs contain, modes by flag and by pool, and what unauthenticated clients
//! get.

mod modes;
mod requests;
pub(crate) mod tokens;
