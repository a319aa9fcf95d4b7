//! The flag that names a Secret with registry credentials.

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
    /// Secret for all pools, `None` to read no Secret.
    pub(super) fn secret(self) -> Option<SecretName> {
        self.registry_auth
    }
}
