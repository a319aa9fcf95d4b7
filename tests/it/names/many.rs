//! Ten thousand machines with overlays: those that ask cost memory, the others next to none.

use serde_json::{Value, json};

use super::{Site, get_known, machine};

/// A `List` of machines, each with a file of its own.
fn machines(count: u16) -> Value {
    let machine = |number: u16| {
        let overlay = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [
            {"path": "/etc/hostname", "mode": 420,
                "contents": {"source": format!("data:,rack-{number}%0A")}},
        ]}});
        machine(&format!("rack-{number}"), &json!({"pool": "worker", "overlay": overlay}))
    };
    let items: Vec<_> = (0..count).map(machine).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[test]
fn ten_thousand_machines_get_tokens_and_cost_little_memory_until_they_ask() {
    const MACHINES: u16 = 10_000;
    const ASKING: u16 = 200;
    const KIB_PER_MACHINE: u64 = 16;
    let site = Site::new();
    let server = site.serve(&[]);
    let without = server.resident_bytes();
    site.put("machines", &machines(MACHINES));
    let last = site.credential(&format!("rack-{}", MACHINES - 1));
    let client = site.tls(&server);
    assert_eq!(get_known(&client, "worker", &last).status, 200);
    let with = server.resident_bytes();
    for number in (0..MACHINES).step_by((MACHINES / ASKING).into()) {
        let answer = get_known(&client, "worker", &site.credential(&format!("rack-{number}")));
        assert_eq!(answer.status, 200);
        assert!(answer.json().to_string().contains(&format!("data:,rack-{number}%0A")));
    }
    let asked = server.resident_bytes();
    let [without, with, asked] = [without, with, asked].map(|bytes| bytes >> 10);
    println!(
        "{without} KiB without machines, {with} KiB with them, {asked} KiB after {ASKING} asked"
    );
    let most = without + KIB_PER_MACHINE * u64::from(MACHINES);
    assert!(with < most, "{with} KiB of {without}");
    assert!(asked < with + (32 << 10), "{asked} KiB of {with}");
}
