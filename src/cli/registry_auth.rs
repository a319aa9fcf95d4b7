//! The flag that names a Secret with registry credentials.

use clap::Args;
use model::objects::SecretName;
use model::registry_credentials::DEFAULT_SECRET;

#[derive(Debug, Args)]
pub(super) struct RegistryCredentialsFlags {
    /// Give machines of enforced pools the registry credentials of this Secret, or of the pool's Secret;
    /// openshift-config/pull-secret without a name
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
