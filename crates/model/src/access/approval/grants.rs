//! Annotations that approve machines.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeMap;
use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::subject::Subject;
use crate::objects::{APPROVED_ANNOTATION, FirstBootMachine, FirstBootMachines, MachineConfigPool};

/// Annotation of a pool whose machines need approval: `required`, or `off`.
pub const APPROVAL_ANNOTATION: &str = "machine-config-server.io/approval";
/// Beginning of a pool's annotation with the time at which the machine at an address was approved.
pub const APPROVED_PREFIX: &str = "approved.machine-config-server.io/";

/// The last grant for each machine, with its time.
pub type ApprovalGrants = BTreeMap<Subject, OffsetDateTime>;

/// Reads the annotations of pools and machines that approve machines. Returns a line for each that is not understood,
/// which approves nothing.
pub fn read_grants(
    pools: &BTreeMap<String, Arc<MachineConfigPool>>,
    machines: &FirstBootMachines,
) -> (ApprovalGrants, Vec<String>) {
    let (mut grants, mut faults) = (ApprovalGrants::new(), Vec::new());
    for (pool, object) in pools {
        for (key, value) in object.annotations_under(APPROVED_PREFIX) {
            let address = address_of(key).ok_or_else(|| {
                "expected an address, an IPv6 one with dashes for colons".to_owned()
            });
            match address.and_then(|address| Ok((address, parse_granted_at(value)?))) {
                Ok((address, at)) => add(&mut grants, Subject::at(pool, address), at),
                Err(error) => faults.push(format!("pool {pool}: {APPROVED_PREFIX}{key}: {error}")),
            }
        }
    }
    for (name, machine) in machines {
        match granted_at(machine) {
            None => {}
            Some(Ok(at)) => add(&mut grants, Subject::Named(name.as_str().into()), at),
            Some(Err(error)) => {
                faults.push(format!("machine {name}: {APPROVED_ANNOTATION}: {error}"));
            }
        }
    }
    (grants, faults)
}

/// Adds a grant; of several for one machine the last counts, as the same address can be written in two ways.
fn add(grants: &mut ApprovalGrants, subject: Subject, at: OffsetDateTime) {
    let known = grants.entry(subject).or_insert(at);
    *known = at.max(*known);
}

/// Time of the grant in a machine's annotation, if it has one. A grant from before the object was created is none: it was for
/// an earlier object of this name.
///
/// # Errors
/// It is no time by RFC 3339.
pub fn granted_at(machine: &FirstBootMachine) -> Option<Result<OffsetDateTime, String>> {
    let at = parse_granted_at(machine.approved()?);
    let is_before = |at: &OffsetDateTime| machine.created().is_some_and(|created| *at < created);
    Some(at).filter(|at| !at.as_ref().is_ok_and(is_before))
}

/// Parses the time of a grant.
///
/// # Errors
/// It is no time by RFC 3339.
pub fn parse_granted_at(text: &str) -> Result<OffsetDateTime, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339);
    time.map_err(|_| "expected the time of the approval, such as 2026-11-25T12:00:00Z".to_owned())
}

/// Key of a pool's annotation that approves the machine at an address. The name in a key has no colons, and begins and
/// ends with a letter or digit.
pub fn annotation_of(address: IpAddr) -> String {
    let name = match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let segments = address.segments().map(|segment| format!("{segment:x}"));
            segments.join("-")
        }
    };
    format!("{APPROVED_PREFIX}{name}")
}

/// The address in the last part of a key.
fn address_of(name: &str) -> Option<IpAddr> {
    let address = match name.parse() {
        Ok(address) => address,
        Err(_) => IpAddr::V6(name.replace('-', ":").parse::<Ipv6Addr>().ok()?),
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;
    use crate::objects::{FIRST_BOOT_MACHINE_VERSION, Object};

    fn read(of_pool: &Value, of_machine: &Value) -> (ApprovalGrants, Vec<String>) {
        let pool = json!({"metadata": {"name": "worker", "annotations": of_pool}});
        let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
        let metadata = json!({"name": "rack-7", "annotations": of_machine});
        let machine = json!({"metadata": metadata, "spec": {"pool": "worker"}});
        let machine: FirstBootMachine = serde_json::from_value(machine).unwrap();
        read_grants(
            &[("worker".to_owned(), Arc::new(pool))].into(),
            &[("rack-7".to_owned(), Arc::new(machine))].into(),
        )
    }

    #[test]
    fn a_grant_is_for_one_machine_and_has_a_time() {
        let time = "2026-11-25T12:00:00Z";
        let of_pool = json!({
            "approved.machine-config-server.io/192.0.2.7": time,
            "approved.machine-config-server.io/2001-db8--7": time,
            "approved.machine-config-server.io/2001-db8-0-0-0-0-0-7": "2026-11-25T14:00:00+01:00",
            "approved.machine-config-server.io/0-0-0-0-0-0-0-1": time,
            "machine-config-server.io/approval": "required",
        });
        let (grants, faults) = read(&of_pool, &json!({APPROVED_ANNOTATION: time}));
        assert!(faults.is_empty(), "{faults:?}");
        let at = |address: &str| grants[&Subject::at("worker", address.parse().unwrap())];
        let noon = datetime!(2026-11-25 12:00 UTC);
        assert_eq!((at("192.0.2.7"), at("::1")), (noon, noon));
        assert_eq!(at("2001:db8::7"), datetime!(2026-11-25 13:00 UTC), "the later one");
        assert_eq!(grants[&Subject::Named("rack-7".into())], noon);
        assert_eq!(grants.len(), 4);
    }

    #[test]
    fn what_is_not_understood_is_named_and_approves_nothing() {
        let of_pool = json!({
            "approved.machine-config-server.io/192.0.2.7": "yes",
            "approved.machine-config-server.io/192.0.2.0_24": "2026-11-25T12:00:00Z",
        });
        let (grants, mut faults) = read(&of_pool, &json!({APPROVED_ANNOTATION: ""}));
        faults.sort();
        assert!(grants.is_empty());
        let time = "expected the time of the approval, such as 2026-11-25T12:00:00Z";
        assert_eq!(
            faults,
            [
                format!("machine rack-7: machine-config-server.io/approved: {time}"),
                "pool worker: approved.machine-config-server.io/192.0.2.0_24: expected an address, an \
                 IPv6 one with dashes for colons"
                    .to_owned(),
                format!("pool worker: approved.machine-config-server.io/192.0.2.7: {time}"),
            ]
        );
    }

    #[test]
    fn what_was_granted_before_the_object_was_created_was_for_an_earlier_one() {
        let granted = |created: &Value| {
            let object = json!({
                "apiVersion": FIRST_BOOT_MACHINE_VERSION, "kind": "FirstBootMachine",
                "metadata": {
                    "name": "rack-7", "creationTimestamp": created,
                    "annotations": {APPROVED_ANNOTATION: "2026-11-25T12:00:00Z"},
                },
                "spec": {"pool": "worker"},
            });
            match Object::from_value(object) {
                Ok(Some(Object::FirstBootMachine(machine))) => granted_at(&machine),
                other => panic!("{other:?}"),
            }
        };
        let noon = Some(Ok(datetime!(2026-11-25 12:00 UTC)));
        for created in [json!(null), json!("x"), json!("2026-11-25T12:00:00Z")] {
            assert_eq!(granted(&created), noon, "{created}");
        }
        assert_eq!(granted(&json!("2026-11-25T12:00:01Z")), None);
    }

    /// By the API's rules of a qualified name.
    #[test]
    fn each_address_has_a_key_that_the_api_takes_and_is_read_again() {
        for address in ["192.0.2.7", "2001:db8::7", "::", "::1", "fe80::", "::ffff:192.0.2.7"] {
            let address: IpAddr = address.parse().unwrap();
            let key = annotation_of(address);
            let name = key.strip_prefix(APPROVED_PREFIX).unwrap();
            let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
            assert!(name.len() <= 63 && name.chars().all(is_inner), "{key}");
            let is_edge = |edge: Option<char>| edge.is_some_and(|c| c.is_ascii_alphanumeric());
            assert!(is_edge(name.chars().next()) && is_edge(name.chars().last()), "{key}");
            assert_eq!(address_of(name), Some(address.to_canonical()));
        }
    }
}
