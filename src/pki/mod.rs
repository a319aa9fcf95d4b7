//! The machine config server's own certificate authority and serving pair.

pub mod hosts;
pub mod issue;
pub mod pair;

pub use hosts::Host;
pub use issue::{Issued, IssueError, issue_authority, issue_serving};
