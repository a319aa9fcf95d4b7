//! What `deploy/` has, as a real kubelet runs it: in pods, behind a Service, with secrets mounted,
//! under the Pod Security standards that a namespace asks for. Each test has a node of its own, and
//! does what the book says, with the files that it shows.

mod away;
pub(crate) mod book;
mod boots;
mod chart;
mod eviction;
mod first_boot;
mod host_network;
mod pulls;
mod registry_cas;
mod site;
mod storm;
