//! The machine config server's own certificate authority and serving pair.

pub mod hosts;
pub mod issue;
pub mod pair;

pub use hosts::Host;
pub use issue::{IssueError, Issued, issue_authority, issue_serving};
