//! Names of hosts: those of registries, which become paths, and those in certificates.

use model::registry_ca::RegistryHost;
use pki::Host;

use super::text;

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = text(data);
    if let Ok(host) = RegistryHost::parse(text) {
        let path = host.certs_d_path();
        let within = path.strip_prefix("/etc/docker/certs.d/").expect("the folder");
        assert!(within.matches('/').count() == 1 && !within.contains(".."), "{path}");
        assert_eq!(RegistryHost::parse(host.as_str()), Ok(host.clone()));
        assert_eq!(RegistryHost::parse(&host.config_map_key()), Ok(host.clone()));
        let identity = RegistryHost::parse(&host.identity()).expect("a plainer spelling");
        assert_eq!(identity.identity(), host.identity());
    }
    if let Ok(host) = text.parse::<Host>() {
        assert_eq!(host.to_string().parse(), Ok(host));
    }
}
