//! The command `machines approve`.

use std::net::IpAddr;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use model::access::MachineToken;
use model::access::approval::{APPROVED_PREFIX, Subject, annotation_of, parse_yes};
use model::objects::{APPROVED_ANNOTATION, OPERATOR_NAMESPACE};
use model::overview::WaitingMachine;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

use super::certs::date;
use super::machines::ask;
use super::named_machines::{StateFlags, name, open_state};
use super::print_line;
use crate::flags::host_and_port;
use crate::kubernetes::client;

/// Time after which an approval of an address is removed from its pool, long after its end.
const REMOVED_AFTER: Duration = Duration::days(1);

/// Settings of the command.
#[derive(Debug, Args)]
pub struct ApproveSettings {
    /// Name of the machine, or the address that it waits at
    #[arg(value_name = "NAME|ADDRESS", value_parser = name_or_address)]
    machine: String,
    /// Pool of the machine at the address. By default the one that it waits for
    #[arg(long, value_name = "POOL", value_parser = name)]
    pool: Option<String>,
    /// Metrics address of a server, which knows the machine that waits at the address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8797", value_parser = host_and_port)]
    from: String,
    #[command(flatten)]
    state: StateFlags,
}

#[derive(Debug, Deserialize)]
struct WaitingOverview {
    waiting_machines: Vec<WaitingMachine>,
}

fn name_or_address(text: &str) -> Result<String, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_canonical().to_string()),
        Err(_) => name(text),
    }
}

/// Approves a machine for one window.
pub fn run(settings: &ApproveSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let StateFlags { state_dir, kubeconfig, in_cluster } = &settings.state;
    let subject = subject(settings)?;
    if kubeconfig.is_some() || *in_cluster {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = client::connect(kubeconfig.clone()).await?;
            approve_in_cluster(client, &subject, now).await
        })?;
    } else {
        let state = open_state(state_dir)?;
        let is_known = match &subject {
            Subject::Named(name) => state
                .machine_token(name)?
                .is_some_and(|MachineToken { revoked, .. }| revoked.is_none()),
            Subject::At { pool, .. } => state.pools()?.contains(&**pool),
        };
        match &subject {
            Subject::Named(name) => ensure!(is_known, "machine {name} not found"),
            Subject::At { pool, .. } => ensure!(is_known, "pool {pool} not found"),
        }
        state.approve(&subject, now)?;
    }
    print_line(&format!("{subject}: approved; a running server lets it boot within seconds"));
    Ok(())
}

/// The machine that is meant.
fn subject(settings: &ApproveSettings) -> anyhow::Result<Subject> {
    let ApproveSettings { machine, pool, from, .. } = settings;
    let Ok(address) = machine.parse::<IpAddr>() else {
        ensure!(pool.is_none(), "--pool is for an address, and {machine} is a name");
        return Ok(Subject::Named(machine.as_str().into()));
    };
    if let Some(pool) = pool {
        return Ok(Subject::at(pool, address));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let WaitingOverview { waiting_machines } = runtime
        .block_on(ask(from))
        .context("cannot ask which pool the machine waits for; name it with --pool")?;
    let mut there = waiting_machines.into_iter().filter(|waits| waits.address == address);
    match (there.next(), there.next()) {
        (None, _) => bail!("no machine waits at {address}; approve one beforehand with --pool"),
        (Some(_), Some(_)) => {
            bail!("several machines wait at {address}; name the machine, or its pool with --pool")
        }
        (Some(WaitingMachine { name: Some(name), .. }), None) => {
            Ok(Subject::Named(name.as_str().into()))
        }
        (Some(waits), None) => Ok(Subject::at(&waits.pool, address)),
    }
}

/// Annotates the object that approves a machine, for all servers of the cluster.
async fn approve_in_cluster(
    client: Client,
    subject: &Subject,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let (kind, namespace, name) = match subject {
        Subject::Named(name) => (machines(), OPERATOR_NAMESPACE, name),
        Subject::At { pool, .. } => (pools(), "", pool),
    };
    let api: Api<DynamicObject> = client::api(&client, namespace, &kind);
    let object = format!("{} {name}", kind.kind);
    let mut annotations = Map::new();
    match subject {
        Subject::Named(_) => {
            annotations.insert(APPROVED_ANNOTATION.to_owned(), date(now)?.into());
        }
        Subject::At { address, .. } => {
            let known = api.get_metadata(name).await.with_context(|| object.clone())?;
            let known = known.metadata.annotations.unwrap_or_default();
            let old = known.iter().filter(|(key, value)| is_old(key, value, now));
            annotations.extend(old.map(|(key, _)| (key.clone(), Value::Null)));
            annotations.insert(annotation_of(*address), date(now)?.into());
        }
    }
    let patch = json!({"metadata": {"annotations": annotations}});
    let params = PatchParams::default();
    api.patch_metadata(name, &params, &Patch::Merge(patch)).await.context(object)?;
    Ok(())
}

/// True for an approval of an address that ended long ago.
fn is_old(key: &str, value: &str, now: OffsetDateTime) -> bool {
    let at = parse_yes(value);
    key.starts_with(APPROVED_PREFIX) && at.is_ok_and(|at| now - at > REMOVED_AFTER)
}

fn machines() -> ApiResource {
    let (group, kind) = ("machine-config-server.io", "FirstBootMachine");
    client::resource(group, "v1alpha1", kind, "firstbootmachines")
}

fn pools() -> ApiResource {
    let (group, kind) = ("machineconfiguration.openshift.io", "MachineConfigPool");
    client::resource(group, "v1", kind, "machineconfigpools")
}
