//! The names of the API server inside the cluster, which are the machine config server's too.

use serde_json::Value;

use crate::pki::Host;

/// What `infrastructures.config.openshift.io/cluster` says about the way to the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Infrastructure {
    /// Every name and address, the main one first.
    pub hosts: Vec<Host>,
    /// The one that goes into pointer configs.
    pub pointer_host: Option<Host>,
}

/// Platforms whose machines cannot rely on a name before they are configured, so that their pointer
/// configs have the address, as the reference's.
const BY_ADDRESS: [&str; 4] = ["baremetal", "openstack", "ovirt", "vsphere"];

impl Infrastructure {
    /// Reads the object.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let status = &object["status"];
        let url = status["apiServerInternalURI"].as_str().unwrap_or_default();
        let name: Option<Host> = url
            .parse::<http::Uri>()
            .ok()
            .and_then(|url| url.host().and_then(|host| host.parse().ok()));
        let mut addresses = Vec::new();
        let mut first_of_platform = None;
        let platforms = status["platformStatus"].as_object();
        for (platform, details) in platforms.into_iter().flatten() {
            let one = details["apiServerInternalIP"].as_str().into_iter();
            let balancer = &details["cloudLoadBalancerConfig"]["clusterHosted"];
            let many = [&details["apiServerInternalIPs"], &balancer["apiIntLoadBalancerIPs"]];
            let many = many.into_iter().filter_map(Value::as_array).flatten();
            // The list comes first: the single address is its first entry, from older releases.
            let found: Vec<Host> = many
                .filter_map(Value::as_str)
                .chain(one)
                .filter_map(|text| text.parse().ok())
                .collect();
            if BY_ADDRESS.contains(&platform.as_str()) {
                first_of_platform = first_of_platform.or(found.first().cloned());
            }
            addresses.extend(found);
        }
        let pointer_host = first_of_platform.or_else(|| name.clone());
        let mut hosts: Vec<Host> = Vec::new();
        for host in name.into_iter().chain(addresses) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        Self { hosts, pointer_host }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(platform: &Value) -> (Vec<String>, String) {
        let read = Infrastructure::read(&json!({"status": {
            "apiServerInternalURI": "https://api-int.c.example.com:6443",
            "platformStatus": platform,
        }}));
        let hosts = read.hosts.iter().map(Host::to_string).collect();
        (hosts, read.pointer_host.unwrap().to_string())
    }

    #[test]
    fn every_platforms_addresses_are_found() {
        let name = "api-int.c.example.com";
        for platform in ["baremetal", "openstack", "ovirt", "vsphere"] {
            let details = json!({"apiServerInternalIPs": ["192.0.2.5", "2001:db8::5"],
                                 "apiServerInternalIP": "192.0.2.5"});
            let (hosts, pointer) = read(&json!({"type": "X", platform: details}));
            assert_eq!(hosts, [name, "192.0.2.5", "[2001:db8::5]"]);
            assert_eq!(pointer, "192.0.2.5", "{platform}");
        }
        let (hosts, pointer) = read(&json!({"nutanix": {"apiServerInternalIPs": ["192.0.2.5"]}}));
        assert_eq!((hosts.len(), pointer.as_str()), (2, name));
        let balancer = json!({"cloudLoadBalancerConfig": {"clusterHosted": {
            "apiIntLoadBalancerIPs": ["192.0.2.7"]}}});
        let (hosts, pointer) = read(&json!({"aws": balancer}));
        assert_eq!(hosts, [name, "192.0.2.7"]);
        assert_eq!(pointer, name);
        let only_v6 = json!({"apiServerInternalIPs": ["2001:db8::5"]});
        assert_eq!(read(&json!({"baremetal": only_v6})).1, "[2001:db8::5]");
    }

    #[test]
    fn what_says_nothing_has_no_names() {
        for object in [json!({}), json!({"status": {"apiServerInternalURI": ""}})] {
            assert_eq!(Infrastructure::read(&object), Infrastructure::default());
        }
    }
}
