//! Connects the pipeline of a server with its inputs, tokens, machines and state directory.

use std::sync::Arc;

use arc_swap::ArcSwap;
use files::shared_watch::SharedWatch;
use model::access::Policy;
use model::access::machine::Window;
use model::inputs::Inputs;
use model::snapshot::{AccessRules, SnapshotParts};
use telemetry::Reporting;
use tokio::sync::watch;

use super::allowed_networks;
use super::settings::{AccessSettings, Local};
use crate::commands::process::progress::Progress;
use crate::commands::process::tasks::Tasks;
use crate::serving::approvals::reconciler::ApprovalReconciler;
use crate::serving::overlays::Overlays;
use crate::serving::pipeline::pointer_writer::PointerWriter;
use crate::serving::pipeline::publish::Publisher;
use crate::serving::pipeline::{LocalState, Pipeline};
use crate::serving::tokens::cache::TokenCache;
use crate::serving::tokens::cluster::ClusterUses;
use crate::serving::tokens::issuer::TokenIssuer;
use crate::serving::tokens::machine::RecordedTokens;
use crate::serving::tokens::machine_reconciler::MachineReconciler;
use crate::serving::tokens::named_machines::{MachineTokens, NamedMachines};
use crate::serving::tokens::reconciler::TokenReconciler;
use crate::source::Source;
use crate::source::cluster::access;

/// Reconcilers of approvals and of the state directory, if there is one. Returns the watch by
/// which they follow it.
pub(in crate::commands) fn local_state(
    local: Option<Local>,
    window: Window,
    port: u16,
    publisher: &Publisher,
) -> (LocalState, Option<SharedWatch>) {
    let (reporting, history) = (publisher.reporting.clone(), publisher.history.clone());
    let mut parts = LocalState::default();
    let directory = local.as_ref().map(|local| local.state.clone());
    let approvals = Arc::clone(&parts.named.approvals);
    let mut approvals = ApprovalReconciler::new(approvals, directory, window, history.clone());
    let Some(Local { state, host, tokens, mut files }) = local else {
        parts.approvals = Some(approvals);
        return (parts, None);
    };
    parts.named.overlays = Some(Arc::new(Overlays::new(reporting.status.clone())));
    let of_machines = Arc::new(RecordedTokens::new(state.clone(), window, reporting, history));
    parts.named.tokens = Some(MachineTokens::Directory(Arc::clone(&of_machines)));
    let mut tokens = TokenReconciler::new(state.clone(), tokens);
    let mut machines = MachineReconciler::new(of_machines, state.clone(), host.clone(), port);
    approvals.follow(&mut files);
    tokens.follow(&mut files);
    machines.follow(&mut files);
    parts.approvals = Some(approvals);
    parts.tokens = Some(tokens);
    parts.machines = Some(machines);
    parts.pointers = Some(PointerWriter::new(state, host, port));
    (parts, Some(files))
}

/// Adds the machines with names of a cluster, if they are served.
fn add_cluster_machines(
    named: &mut NamedMachines,
    tasks: &mut Tasks,
    source: &Source,
    window: Window,
    publisher: &Publisher,
) {
    let identity = crate::commands::process_name('_');
    let Some(cluster) = source.cluster() else { return };
    let Some(records) = cluster.machine_records(&identity) else { return };
    let (reporting, history) = (publisher.reporting.clone(), publisher.history.clone());
    named.overlays = Some(Arc::new(Overlays::new(reporting.status.clone())));
    let store = ClusterUses::new(records, cluster.cache_dir(), &reporting);
    let tokens = Arc::new(RecordedTokens::new(store, window, reporting, history));
    tasks.spawn("the task that records uses of tokens", Arc::clone(&tokens).flush());
    named.tokens = Some(MachineTokens::Cluster(tokens));
}

/// Parts of a pipeline that are made before its source is followed.
pub(in crate::commands) struct PipelineParts {
    pub(in crate::commands) access: AccessSettings,
    pub(in crate::commands) rules: AccessRules,
    pub(in crate::commands) local: LocalState,
    pub(in crate::commands) policy: Arc<ArcSwap<Policy>>,
    pub(in crate::commands) publisher: Publisher,
}

/// Publishes the first inputs, and follows the source, the tokens and the keys of another issuer. Returns the machines
/// with names.
pub(in crate::commands) fn follow_source(
    tasks: &mut Tasks,
    parts: PipelineParts,
    source: Source,
    first: Option<Inputs>,
    reporting: &Reporting,
) -> NamedMachines {
    let PipelineParts { access, rules, mut local, policy, publisher } = parts;
    let AccessSettings { issuer, cache, window, .. } = access;
    allowed_networks::check(tasks, &rules, publisher.subscribe());
    add_cluster_machines(&mut local.named, tasks, &source, window, &publisher);
    let named = local.named.clone();
    let mut published = publisher.subscribe();
    tasks.spawn("the task after changes of the inputs", publisher.after_changes());
    let known = SnapshotParts {
        records: cache.as_ref().and_then(TokenCache::load),
        signed: issuer.as_ref().map(TokenIssuer::tokens),
        ..SnapshotParts::default()
    };
    let are_known = known.records.is_some();
    let mut pipeline = Pipeline::new(rules, known, local, policy, publisher);
    // The first client finds the answers ready.
    if let Some(inputs) = first {
        // A first token for each of thousands of pools takes seconds.
        let many = inputs.pools.len();
        let _progress = Progress::start(&format!("rendering {many} pools, and writing tokens"));
        pipeline.take_inputs(inputs);
    }
    if let Some(cache) = cache {
        let flush = cache.flush(published.clone(), reporting.clone());
        tasks.spawn("the task that manages tokens", flush);
    }
    let (inputs, of_inputs) = watch::channel(None);
    let (records, of_records) = watch::channel(None);
    let (keys, of_keys) = watch::channel(None);
    if let Some(issuer) = issuer {
        let follow = issuer.follow(keys, reporting.status.clone());
        tasks.spawn("the task that follows the keys of signed tokens", follow);
    }
    if let Some(cluster) = source.cluster() {
        let follow = access::follow(cluster.client(), are_known, records, reporting.clone());
        tasks.spawn("the task that follows tokens", async move {
            // The pipeline runs as long as the server.
            let _ = published.wait_for(|now| now.needs_tokens).await;
            follow.await;
        });
    }
    tasks.spawn("the task that follows the inputs", source.follow(inputs, reporting.clone()));
    tasks.spawn("the pipeline", pipeline.run(of_inputs, of_records, of_keys));
    named
}
