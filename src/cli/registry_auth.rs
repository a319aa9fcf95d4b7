//! The flag that names a secret with registry logins.

use clap::Args;
use model::objects::SecretName;
use model::registry_credentials::DEFAULT_SECRET;

#[derive(Debug, Args)]
pub(super) struct RegistryCredentialsFlags {
    /// Give machines of enforced pools the registry logins of this secret, or of a pool's own;
    /// openshift-config/pull-secret where no name is given
    #[arg(long, value_name = "NAMESPACE/NAME", num_args = 0..=1, default_missing_value = DEFAULT_SECRET,
        help_heading = "Access")]
    registry_auth: Option<SecretName>,
}

impl RegistryCredentialsFlags {
    /// The secret for all pools, `None` where no secret is to be read.
    pub(super) fn secret(self) -> Option<SecretName> {
        self.registry_auth
    }
}
