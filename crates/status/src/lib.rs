//! Shows the status of a server or a controller to people and programs. The crate does no I/O; the time is an argument.
//!
//! [`overview`] is the status of everything, one value that is also the JSON. [`page`] formats it, pools and machines as
//! HTML.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod overview;
pub mod page;
