//! Who gets a config: tokens that pointer configs carry, modes by flag and by pool, and what strangers
//! get.

mod modes;
mod requests;
pub(crate) mod tokens;
