//! What fails while a machine boots: the server that answers it, and the API server behind both.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::network::{Network, apart};
use super::site::{Place, Site};
use crate::support::manifests::machine_config_of;
use crate::support::random::Random;
use crate::support::rendered::CONFIGS;
use crate::support::wait_for;

/// Time without an API server.
const AWAY: Duration = Duration::from_secs(60);

#[test]
fn a_machine_joins_whose_server_is_killed_within_its_answer_and_whose_api_server_is_away_for_a_minute()
 {
    apart(|| {
        let mut site = Site::start();
        add_large_file(&site);
        let place = Place(11);
        let user_data = site.user_data("worker");
        site.balance_to(&site.servers[..1]);
        let mut machine = Site::boot(&user_data, &place);
        Network::slow_down(place.0);
        machine.wait_for("the first bytes of an answer", |_| {
            (site.servers[0].metric("mcs_response_bytes_total") > 0.0).then_some(())
        });
        site.plane.cluster.kill_api_server();
        let began = Instant::now();
        // It ends at once, and its answer with it.
        drop(site.servers.remove(0));
        site.balance();
        Network::speed_up(place.0);
        site.shows(&mut machine, &place, "booting", "fetched its config ");
        machine.wait_for("the end of a minute", |_| (began.elapsed() >= AWAY).then_some(()));
        site.plane.cluster.start_api_server();
        site.joined(&mut machine, &place.node());
        wait_for("the ledger to say so", || {
            (site.machine(&place)?["standing"] == "joined").then_some(())
        });
    });
}

/// Gives the pool a file that does not compress.
fn add_large_file(site: &Site) {
    let mut random = Random(7);
    let bytes: Vec<_> = (0..87_500).flat_map(|_| random.below(u64::MAX).to_be_bytes()).collect();
    let file = json!({
        "path": "/var/lib/large", "mode": 0o600,
        "contents": {"source": format!("data:;base64,{}", BASE64.encode(bytes))},
    });
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
    site.plane.cluster.create(CONFIGS, &machine_config_of("worker", "60-large", &config));
    site.serves("/var/lib/large");
}
