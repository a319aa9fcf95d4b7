//! Serves Ignition configs to machines that boot for the first time.
#![forbid(unsafe_code)]

pub mod ignition;
