//! How long it takes from a change to the first machine that gets what is new: of one pool, and of what
//! all pools share.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::machine::Machine;
use crate::objects;
use crate::replica::Replica;

/// A change that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two boots of the machine that asks; a change is never told sooner than it was there.
const PAUSE: Duration = Duration::from_millis(2);
/// Between two changes: each comes to servers that are at rest.
const APART: Duration = Duration::from_millis(500);

/// Has so many pools change one after the other, and returns how long each server took for each.
pub(crate) fn measure(
    runtime: &Runtime,
    changes: u32,
    cluster: &Cluster,
    replicas: &[Replica; 2],
) -> Result<[Vec<Duration>; 2]> {
    let mut took = [Vec::new(), Vec::new()];
    for change in 0..changes {
        let both = runtime.block_on(measure_one(change, cluster, replicas))?;
        for (took, one) in took.iter_mut().zip(both) {
            took.push(one);
        }
        std::thread::sleep(APART);
    }
    Ok(took)
}

/// Has what all pools share change, after which everything that was asked for before is rendered anew:
/// no machine is served the new state before all can be. Returns how long each server took.
pub(crate) fn measure_shared(
    runtime: &Runtime,
    cluster: &Cluster,
    [first, second]: &[Replica; 2],
) -> Result<[Duration; 2]> {
    let begun = Instant::now();
    let [first, second] = [first, second].map(|replica| replica.machine.of_pool(&objects::pool(1)));
    runtime.block_on(async {
        let ((), first, second) = tokio::try_join!(
            objects::change_shared(cluster),
            until_served(&first, objects::SHARED_CHANGE, begun),
            until_served(&second, objects::SHARED_CHANGE, begun),
        )?;
        Ok([first, second])
    })
}

async fn measure_one(
    change: u32,
    cluster: &Cluster,
    [first, second]: &[Replica; 2],
) -> Result<[Duration; 2]> {
    // The large one stays as it is, where there are others.
    let (pool, configuration) = (1 + change, objects::changed(change));
    let begun = Instant::now();
    let body = json!({"spec": {"configuration": {"name": configuration}}});
    let path = objects::pool_path(pool);
    let [first, second] =
        [first, second].map(|replica| replica.machine.of_pool(&objects::pool(pool)));
    let ((), first, second) = tokio::try_join!(
        cluster.patch(&path, &body),
        until_served(&first, &configuration, begun),
        until_served(&second, &configuration, begun),
    )?;
    Ok([first, second])
}

/// Boots a machine until `text` is in what it gets.
pub(crate) async fn until_served(
    machine: &Machine,
    text: &str,
    begun: Instant,
) -> Result<Duration> {
    let mut buffer = Vec::new();
    loop {
        let config = machine.boot(&mut buffer).await?;
        if config.windows(text.len()).any(|it| it == text.as_bytes()) {
            return Ok(begun.elapsed());
        }
        ensure!(begun.elapsed() < TIMEOUT, "{text} is not served");
        sleep(PAUSE).await;
    }
}
