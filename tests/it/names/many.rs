//! Thousands of machines with overlays: those that ask cost memory, the others next to none.

use serde_json::{Value, json};

use super::MachinesDirectory;
use crate::support::access::get;
use crate::support::manifests::first_boot_machine;
use crate::support::wait_for;

/// A `List` of machines, each with a file of its own.
fn machines(count: u16) -> Value {
    let machine = |number: u16| {
        let overlay = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [
            {"path": "/etc/hostname", "mode": 420,
                "contents": {"source": format!("data:,rack-{number}%0A")}},
        ]}});
        first_boot_machine(
            &format!("rack-{number}"),
            &json!({"pool": "worker", "overlay": overlay}),
        )
    };
    let items: Vec<_> = (0..count).map(machine).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// How many there are; `NAMED_MACHINES` for more of them.
const MACHINES: u16 = 2_000;

#[test]
fn thousands_of_machines_get_tokens_and_cost_little_memory_until_they_ask() {
    const ASKING: u16 = 200;
    const KIB_PER_MACHINE: u64 = 16;
    let count = std::env::var("NAMED_MACHINES").ok();
    let count = count.map_or(MACHINES, |text| text.parse().expect("NAMED_MACHINES, a number"));
    let site = MachinesDirectory::new();
    let server = site.serve(&[]);
    let without = server.resident_bytes();
    site.put("machines", &machines(count));
    let client = site.tls(&server);
    // A machine that the server does not know yet gets the config of its pool.
    let gets_its_own = |number: u16| {
        let answer = get(&client, "worker", Some(&site.credential(&format!("rack-{number}"))));
        let own = format!("data:,rack-{number}%0A");
        (answer.status == 200 && answer.json().to_string().contains(&own)).then_some(())
    };
    wait_for("the last one's file", || gets_its_own(count - 1));
    let with = server.resident_bytes();
    for number in (0..count).step_by((count / ASKING).into()) {
        wait_for("its own file", || gets_its_own(number));
    }
    let asked = server.resident_bytes();
    let [without, with, asked] = [without, with, asked].map(|bytes| bytes >> 10);
    println!(
        "{without} KiB without machines, {with} KiB with them, {asked} KiB after {ASKING} asked"
    );
    let most = without + KIB_PER_MACHINE * u64::from(count);
    assert!(with < most, "{with} KiB of {without}");
    assert!(asked < with + (32 << 10), "{asked} KiB of {with}");
}
