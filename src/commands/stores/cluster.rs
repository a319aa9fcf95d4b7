//! A cluster as a store for commands: rotations are requested by annotations, which its controller handles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use controllers::certificates::{
    AdministratorRequest, CA, ClusterState, Observer, SERVING, is_unused,
};
use controllers::{NAMESPACE, tokens, until_applied};
use kube::Client;
use kubernetes::{Applied, ObjectName, client};
use model::access::Records;
use model::inputs::{Inputs, Problem};
use model::objects::Object;
use pki::{CertificateState, Policy, RotationRequest};
use time::OffsetDateTime;
use tokio::runtime::{Builder, Runtime};

use super::certificate_texts::{date, warn_locked_out};
use super::distrust::DistrustPreview;
use super::exposure::{self, ConfigFindings};
use super::state_store::{ChangeTokens, ObservedState, StateStore};
use crate::commands::print_line;

/// A client of the cluster, with a runtime for its answers.
pub(in crate::commands) struct ClusterStore {
    pub(in crate::commands) runtime: Runtime,
    pub(in crate::commands) client: Client,
    user_data_namespace: String,
}

impl ClusterStore {
    /// Connects by a kubeconfig, or by the pod's service account.
    pub(in crate::commands) fn connect(
        kubeconfig: Option<PathBuf>,
        user_data_namespace: &str,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(client::connect_for_command(kubeconfig))?;
        Ok(Self { runtime, client, user_data_namespace: user_data_namespace.to_owned() })
    }

    /// Reads the present state, and the objects.
    async fn see(&self) -> Result<(ObservedState, ClusterState)> {
        let namespace = &self.user_data_namespace;
        let observer = Observer::new(self.client.clone(), namespace.clone(), Vec::new());
        let observer = Observer { has_machines: true, ..observer };
        let state = observer.observe_with_external_pair().await?;
        let certificates = state.certificates(&state.assess_user_data()?, &BTreeSet::new())?;
        let title = |name: &String| state.user_data_title(name);
        let pointers = state.user_data.iter().filter_map(|(name, secret)| {
            let data = secret.data.as_ref()?.get("userData")?;
            Some((title(name), data.0.clone()))
        });
        let unused = state.user_data.iter().filter(|(_, secret)| is_unused(secret));
        let of_machines = state.user_data.keys().filter(|name| ClusterState::is_of_machine(name));
        let seen = ObservedState {
            pools: state.pools.iter().map(|pool| pool.name.clone()).collect(),
            place: "the cluster".to_owned(),
            pointers: pointers.collect(),
            unused: unused.map(|(name, _)| title(name)).collect(),
            of_machines: of_machines.map(title).collect(),
            open_files: Vec::new(),
            unreadable: Vec::new(),
            files: [CA, SERVING].map(|name| format!("Secret {NAMESPACE}/{name}")),
            observed: certificates,
        };
        Ok((seen, state))
    }

    /// The pools with the configs that they serve, without what servers add.
    pub(in crate::commands) fn inputs(&self) -> Result<Inputs> {
        let (mut pools, mut machine_configs) = (BTreeMap::new(), BTreeMap::new());
        let mut problems = Vec::new();
        for (pool, found) in self.runtime.block_on(exposure::served_configs(&self.client))? {
            match found.map(serde_json::to_value).transpose()?.map(Object::from_value) {
                Some(Ok(Some(Object::MachineConfig(config)))) => {
                    machine_configs.insert(config.name().to_owned(), config);
                }
                Some(Err(error)) => {
                    let place = format!("MachineConfigPool {}", pool.name());
                    problems.push(Problem::whole(&place, error.to_string()));
                }
                Some(Ok(_)) | None => {}
            }
            pools.insert(pool.name().to_owned(), Arc::new(pool));
        }
        let (pools, machine_configs) = (Arc::new(pools), Arc::new(machine_configs));
        Ok(Inputs { pools, machine_configs, problems, ..Inputs::default() })
    }

    /// Reads the state, and writes the request that `decide` returns, if any. After a conflict it reads again.
    fn ask(
        &self,
        secret: &str,
        mut decide: impl FnMut(ObservedState) -> Result<Option<AdministratorRequest>>,
    ) -> Result<()> {
        let object = ObjectName::secret(NAMESPACE, secret);
        self.runtime.block_on(until_applied(object, async || {
            let (seen, cluster) = self.see().await?;
            match decide(seen)? {
                Some(request) => Ok(request.apply(&self.client, &cluster).await?),
                None => Ok(Applied::Done),
            }
        }))
    }
}

impl StateStore for ClusterStore {
    fn observe(&self, _: Option<&Path>) -> Result<ObservedState> {
        Ok(self.runtime.block_on(self.see())?.0)
    }

    fn has_separate_rights(&self) -> bool {
        true
    }

    fn config_findings(&self, _: Option<&Path>) -> Result<ConfigFindings> {
        let enforced = self.records()?.enforced;
        self.runtime.block_on(exposure::of_cluster(&self.client, &enforced))
    }

    fn records(&self) -> Result<Records> {
        Ok(self.runtime.block_on(tokens::records(&self.client))?)
    }

    fn change_tokens(&self, change: &ChangeTokens<'_>) -> Result<()> {
        self.runtime.block_on(tokens::change_tokens(&self.client, change))
    }

    fn rotate(&self, ca: bool, force: bool, policy: &Policy, now: OffsetDateTime) -> Result<()> {
        let mut warnings = Vec::new();
        for secret in [ca.then_some(CA), Some(SERVING)].into_iter().flatten() {
            let value = date(now)?;
            let is_first = secret == CA || !ca;
            self.ask(secret, |ObservedState { place, observed, .. }| {
                let requested = RotationRequest { ca, serving: true, force, ..observed.requested };
                let state = CertificateState { requested, ..observed };
                let generate = &mut |_| policy.algorithm.generate();
                // A request that the controller would refuse is reported here instead.
                let (_, attention) = pki::dry_run(&state, policy, now, generate)?;
                let refused = attention.iter().find(|it| it.is_refused_request());
                if let Some(refused) = refused.filter(|_| is_first) {
                    bail!("{place}: {refused}");
                }
                warnings = attention;
                Ok(Some(AdministratorRequest::Rotation {
                    secret,
                    value: value.clone(),
                    is_forced: force,
                }))
            })?;
            print_line(&format!("requested a rotation of Secret {NAMESPACE}/{secret}"));
        }
        warn_locked_out(warnings);
        Ok(())
    }

    fn distrust(
        &self,
        named: &[String],
        yes: bool,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<()> {
        let mut reported = BTreeSet::new();
        let mut last: Option<DistrustPreview> = None;
        self.ask(CA, |seen| {
            let listed = &seen.observed.requested.distrust;
            if last.as_ref().is_some_and(|it| it.is_listed(listed)) {
                return Ok(None);
            }
            let preview = DistrustPreview::of(seen, named, policy, now)?;
            preview.report(yes, now, &mut reported)?;
            let request = AdministratorRequest::Distrust(preview.requested.distrust.clone());
            last = Some(preview);
            Ok(Some(request))
        })?;
        print_line(&format!(
            "requested to distrust them, with an annotation of Secret {NAMESPACE}/{CA}"
        ));
        match last.as_ref().and_then(|preview| preview.obstacle(now)) {
            Some(reason) => bail!("the controller cannot do it yet: {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_command_waits_half_a_minute_for_an_api_server_that_is_busy() {
        // The kernel accepts the connection, and nobody answers.
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let text = serde_json::json!({
            "clusters": [{"name": "a", "cluster": {
                "server": format!("https://{}", busy.local_addr().unwrap()),
                "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "a", "user": {"token": "a"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let store = ClusterStore::connect(Some(kubeconfig), "").unwrap();
        let waited = store.runtime.block_on(async {
            tokio::time::pause();
            let started = tokio::time::Instant::now();
            store.client.apiserver_version().await.unwrap_err();
            started.elapsed()
        });
        assert_eq!(waited.as_secs(), 30);
    }
}
