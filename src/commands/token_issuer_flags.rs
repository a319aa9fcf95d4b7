//! Flags of another issuer of tokens.

use std::path::PathBuf;

use clap::Args;
use model::access::signed::Settings;

use crate::serving::token_issuer::TokenIssuer;

#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub(super) struct TokenIssuerFlags {
    /// Also accept JSON Web Tokens that a key of this JWK set has signed
    #[arg(long = "access-jwks", value_name = "FILE", requires_all = ["issuer", "audience"])]
    jwks: Option<PathBuf>,
    /// Required issuer of these tokens (`iss`)
    #[arg(long = "access-issuer", value_name = "ISSUER", requires = "jwks")]
    issuer: Option<String>,
    /// Required audience of these tokens (`aud`)
    #[arg(long = "access-audience", value_name = "AUDIENCE", requires = "jwks")]
    audience: Option<String>,
    /// Claim with the name of the pool, or a list of pools
    #[arg(
        long = "access-pool-claim",
        value_name = "CLAIM",
        default_value = "pool",
        requires = "jwks"
    )]
    pool_claim: String,
}

impl TokenIssuerFlags {
    pub(super) fn issuer(self) -> anyhow::Result<Option<TokenIssuer>> {
        let (Some(jwks), Some(issuer), Some(audience)) = (self.jwks, self.issuer, self.audience)
        else {
            return Ok(None);
        };
        let settings = Settings { issuer, audience, pool_claim: self.pool_claim };
        TokenIssuer::open(jwks, settings).map(Some)
    }
}
