//! Machines that are approved.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use crate::objects::is_object_name;

/// A machine as it is approved: one with a separate token by its name, any other by its address and pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A machine with a name.
    Named(Arc<str>),
    /// A machine at an address.
    At {
        /// Pool whose config it gets.
        pool: Arc<str>,
        /// Its address, not mapped.
        address: IpAddr,
    },
}

impl Subject {
    /// The machine at an address.
    pub fn at(pool: &str, address: IpAddr) -> Self {
        Self::At { pool: pool.into(), address: address.to_canonical() }
    }

    /// Name of a file about the machine: `NAME`, or `POOL=ADDRESS`.
    pub fn file_name(&self) -> String {
        match self {
            Self::Named(name) => name.to_string(),
            Self::At { pool, address } => format!("{pool}={address}"),
        }
    }

    /// The machine that a file is about; `None` for another file.
    pub fn of_file_name(name: &str) -> Option<Self> {
        match name.split_once('=') {
            None => is_object_name(name).then(|| Self::Named(name.into())),
            Some((pool, address)) => {
                let address = address.parse().ok()?;
                is_object_name(pool).then(|| Self::at(pool, address))
            }
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "machine {name}"),
            Self::At { pool, address } => write!(f, "{address} of pool {pool}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_about_the_machine_that_it_was_named_after() {
        for subject in [
            Subject::Named("rack-7.example.com".into()),
            Subject::Named("192.0.2.7".into()),
            Subject::at("worker", [192, 0, 2, 7].into()),
            Subject::at("worker", "2001:db8::7".parse().unwrap()),
        ] {
            assert_eq!(Subject::of_file_name(&subject.file_name()), Some(subject));
        }
        let mapped = Subject::at("worker", "::ffff:192.0.2.7".parse().unwrap());
        assert_eq!(mapped, Subject::at("worker", [192, 0, 2, 7].into()));
        for other in ["", ".", "..", ".rack-7.tmp", "a/b", "worker=", "=192.0.2.7", "worker=x"] {
            assert_eq!(Subject::of_file_name(other), None, "{other}");
        }
    }
}
