//! Flags of access to the configs of all pools.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use common::flags::{OFF, access_mode, duration};
use files::bounded;
use model::access::AccessMode;
use model::access::machine::Window;
use model::access::signed::{ClaimRules, Settings};
use model::objects::SecretName;
use model::registry_credentials::DEFAULT_SECRET;

use super::settings::AccessSettings;
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
    #[arg(long = "access-jwks", value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// Required issuer of these tokens (`iss`)
    #[arg(long = "access-issuer", requires_all = ["jwks", "audience"])]
    issuer: Option<String>,
    /// Required audience of these tokens (`aud`)
    #[arg(long = "access-audience", requires_all = ["jwks", "issuer"])]
    audience: Option<String>,
    /// Claim with the name of the pool, or a list of pools
    #[arg(long = "access-pool-claim", default_value = "pool", requires = "jwks")]
    claim: String,
    /// Instead: rules in JSON, by which claims of these tokens open pools; read at the start
    #[arg(long = "access-rules", value_name = "FILE", requires = "jwks",
        conflicts_with_all = ["issuer", "audience", "claim"])]
    rules: Option<PathBuf>,
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
        let settings = match (self.issuer, self.audience, self.rules) {
            (Some(issuer), Some(audience), _) => {
                Some(Settings::Issuer { issuer, audience, pool_claim: self.claim })
            }
            (_, _, Some(rules)) => Some(Settings::Rules(read_rules(&rules)?)),
            _ => None,
        };
        let issuer = match (self.jwks, settings) {
            (Some(jwks), Some(settings)) => Some(TokenIssuer::open(jwks, settings)?),
            (Some(_), None) => bail!(
                "--access-jwks needs --access-issuer with --access-audience, or --access-rules"
            ),
            (None, _) => None,
        };
        let window = Window(self.machine_token_window);
        Ok(AccessSettings { mode: self.access, window, issuer, cache })
    }
}

/// Reads rules about claims.
fn read_rules(path: &Path) -> anyhow::Result<ClaimRules> {
    let named = || format!("--access-rules {}", path.display());
    let text = bounded::read(path).with_context(named)?;
    ClaimRules::new(&text).with_context(named)
}
