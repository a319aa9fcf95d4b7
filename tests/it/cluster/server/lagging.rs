//! Servers whose watches hang, while the API server answers them otherwise.

use std::time::{Duration, Instant};

use super::ServedCluster;
use super::layered_images::{IMAGE, image, layer};
use crate::support::contract::{is_served, marker};
use crate::support::proxy::{Proxy, Way};
use crate::support::stopwatch::Stopwatch;
use crate::support::wait_until;

/// Maximum age of what is served, and the time for a machine to get it.
const AFTER: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(3);

#[test]
fn a_server_with_frozen_watches_serves_new_configs_and_images_if_it_reads_live() {
    let site = ServedCluster::with_worker();
    let proxy = Proxy::to(site.cluster.address());
    let after = format!("{}s", AFTER.as_secs());
    let live = site.start_through(proxy.address(), &["--read-live-after", &after]).until_ready();
    let lagging = site.start_through(proxy.address(), &[]).until_ready();
    let prompt = site.start(&[]).until_ready();
    for server in [&live, &lagging, &prompt] {
        assert_eq!(marker(server, "worker"), Ok("one".to_owned()));
    }
    // Each asks the API server every two seconds, by a connection that is not one of a watch; on a busy machine less often.
    let quiet = Duration::from_secs(10);
    let mut last = (0, Instant::now());
    let mut first = None;
    wait_until("all watches of both to be frozen", || {
        let frozen = proxy.freeze_quiet(quiet);
        if frozen != last.0 {
            first.get_or_insert_with(Instant::now);
            last = (frozen, Instant::now());
        }
        // One that began later than others is frozen later.
        frozen >= 16 && last.1.elapsed() > SOON
    });

    site.machine_config("rendered-2", "two");
    site.status("worker", "rendered-2", 0);
    is_served(&prompt, "worker", "two");
    let changed = Stopwatch::start();
    is_served(&live, "worker", "two");
    changed.within(AFTER + SOON, "a live read of a pool");

    layer(&site, "worker", IMAGE, "rendered-1");
    site.status("worker", "rendered-1", 1);
    wait_until("the image", || image(&prompt, "worker") == IMAGE);
    let built = Stopwatch::start();
    wait_until("the image", || image(&live, "worker") == IMAGE);
    built.within(AFTER + SOON, "a live read of an image");
    // A client gives up a watch that is silent for 75 s, of which it was before it was frozen.
    let is_still_frozen = first.is_some_and(|first| first.elapsed() < Duration::from_secs(45));
    assert!(image(&lagging, "worker") != IMAGE || !is_still_frozen, "its watches work");

    // What cannot be read is served as it was.
    proxy.set(Way::Cut);
    live.reported("API server");
    let asked = Stopwatch::start();
    assert_eq!(image(&live, "worker"), IMAGE);
    asked.within(SOON + AFTER, "an answer without an API server");
}
