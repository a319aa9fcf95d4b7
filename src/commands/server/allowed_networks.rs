//! Reports networks of `--allow-from` that keep nobody away: a rule that an administrator believes in must not be without
//! effect in silence.

use model::access::{AccessMode, Networks};
use model::objects::is_misspelt;
use model::snapshot::AccessRules;
use telemetry::listed;

use crate::commands::process::tasks::Tasks;
use crate::serving::pipeline::publish::Subscription;

/// Logs that networks count for reports only, if that is the mode of pools without an annotation, and later the pools that
/// do not exist.
pub(super) fn check(tasks: &mut Tasks, rules: &AccessRules, published: Subscription) {
    if rules.networks.is_empty() {
        return;
    }
    if rules.mode == AccessMode::Audit {
        tracing::warn!(
            fix = "use --access enforce, which needs tokens as well, or --access off, in which networks count",
            "--allow-from blocks nothing in pools with access mode audit, requests from elsewhere are only reported"
        );
    }
    let unknown = warn_unknown_pools(rules.networks.clone(), published);
    tasks.spawn("the task that checks networks", unknown);
}

/// Logs the pools of `networks` that do not exist once all pools are known, and never ends.
async fn warn_unknown_pools(networks: Networks, mut published: Subscription) {
    if let Ok(now) = published.wait_for(|now| now.checked().is_some()).await
        && let Some(inputs) = now.checked()
    {
        let known: Vec<&str> = inputs.pools.keys().map(String::as_str).collect();
        for (pool, meant) in unknown_pools(&networks, &known) {
            tracing::warn!(
                pool,
                meant,
                known = listed(&known),
                fix = "correct the name in --allow-from; a pool that is added later has these networks",
                "--allow-from names a pool that does not exist, its machines are not restricted by it"
            );
        }
    }
    std::future::pending::<()>().await;
}

/// Pools of `networks` that are not among the known ones, each with the one that was meant.
fn unknown_pools<'a>(networks: &'a Networks, known: &[&'a str]) -> Vec<(&'a str, Option<&'a str>)> {
    let unknown = networks.pools().filter(|pool| !known.contains(pool));
    let meant = |pool| known.iter().copied().find(|known| is_misspelt(pool, known));
    unknown.map(|pool| (pool, meant(pool))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_do_not_exist_are_named_with_the_one_that_was_meant() {
        let flags =
            ["wroker=192.0.2.0/24", "master=192.0.2.0/24", "nass=192.0.2.0/24", "192.0.2.1"];
        let networks = Networks::new(flags.iter().map(|flag| flag.parse().unwrap()));
        let found = unknown_pools(&networks, &["edge", "master", "worker"]);
        assert_eq!(found, [("nass", None), ("wroker", Some("worker"))]);
    }
}
