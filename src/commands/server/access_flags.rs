//! Flags of access to the configs of all pools.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::access::AccessMode;
use model::access::machine::Window;
use model::access::signed::Settings;
use model::objects::SecretName;
use model::registry_credentials::DEFAULT_SECRET;

use super::settings::AccessSettings;
use crate::common::flags::{OFF, access_mode, duration};
use crate::serving::tokens::cache::TokenCache;
use crate::serving::tokens::issuer::TokenIssuer;

/// Flags of access. The default mode depends on the command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub(in crate::commands) struct AccessFlags {
    /// Access mode of pools without an annotation: off serves all clients; audit serves all and reports
    /// requests that would be refused; enforce serves clients with a token
    #[arg(long, value_name = "off|audit|enforce", default_value = OFF, value_parser = access_mode(),
        hide_possible_values = true)]
    access: AccessMode,
    /// Time that a machine's token stays valid after its config was first sent completely
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    machine_token_window: Duration,
    /// Also accept JSON Web Tokens that a key of this JWK set has signed
    #[arg(long = "access-jwks", value_name = "FILE", requires_all = ["issuer", "audience"])]
    jwks: Option<PathBuf>,
    /// Required issuer of these tokens (`iss`)
    #[arg(long = "access-issuer", requires = "jwks")]
    issuer: Option<String>,
    /// Required audience of these tokens (`aud`)
    #[arg(long = "access-audience", requires = "jwks")]
    audience: Option<String>,
    /// Claim with the name of the pool, or a list of pools
    #[arg(long = "access-pool-claim", default_value = "pool", requires = "jwks")]
    claim: String,
    /// Give machines of enforced pools the registry credentials of this Secret, or of the pool's Secret;
    /// openshift-config/pull-secret without a name
    #[arg(long, value_name = "NAMESPACE/NAME", num_args = 0..=1, default_missing_value = DEFAULT_SECRET)]
    pub(in crate::commands) registry_auth: Option<SecretName>,
}

impl AccessFlags {
    /// Converts the flags to settings, and reads the keys of another issuer.
    pub(in crate::commands) fn settings(
        self,
        cache: Option<TokenCache>,
    ) -> anyhow::Result<AccessSettings> {
        let issuer = match (self.jwks, self.issuer, self.audience) {
            (Some(jwks), Some(issuer), Some(audience)) => {
                let settings = Settings { issuer, audience, pool_claim: self.claim };
                Some(TokenIssuer::open(jwks, settings)?)
            }
            _ => None,
        };
        let window = Window(self.machine_token_window);
        Ok(AccessSettings { mode: self.access, window, issuer, cache })
    }
}
