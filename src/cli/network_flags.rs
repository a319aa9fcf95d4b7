//! Flags that say who is where: networks that may ask, and balancers in front.

use clap::Args;
use model::access::{Allowed, Network, Networks};

use crate::server::Balancers;

/// Networks that may ask, and those that balancers are in.
#[derive(Debug, Args)]
#[command(next_help_heading = "Networks")]
pub(super) struct NetworkFlags {
    /// Network that configs may be asked for from, everywhere by default; given for a pool, it
    /// counts for that one in place of the general ones. May be repeated
    #[arg(long, value_name = "[POOL=]CIDR")]
    allow_from: Vec<Allowed>,
    /// Network of balancers, which have to tell whom they connect by the PROXY protocol, version 1
    /// or 2; nobody else is believed. May be repeated
    #[arg(long, value_name = "CIDR")]
    proxy_from: Vec<Network>,
}

impl NetworkFlags {
    /// From where configs may be asked for.
    pub(super) fn networks(&self) -> Networks {
        Networks::new(self.allow_from.iter().cloned())
    }

    /// Who says whom it connects.
    pub(super) fn balancers(&self) -> Balancers {
        Balancers::new(self.proxy_from.iter().copied())
    }
}
