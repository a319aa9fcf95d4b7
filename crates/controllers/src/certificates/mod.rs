//! Manages the certificates of a cluster, and the CAs in user data.
//!
//! `observe` reads the objects into [`ClusterState`], [`pki::next`] decides, `objects` builds the writes and `apply`
//! applies them: one step, then everything is read again.

mod apply;
mod external_pair;
mod internal_release_image;
mod names;
mod objects;
mod observe;
pub(crate) mod reference;
pub(crate) mod reporting;
pub(crate) mod requests;
mod retype;
mod secret;
pub(crate) mod settings;
mod state;
mod user_data;

use anyhow::bail;
use clap::Args;
use common::flags::CertificateFlags;
use common::reconcile::Requeue;
use kube::Client;
use kubernetes::Health;
use kubernetes::apply::{Applied, apply};
use kubernetes::{ControlError, Malformed, ObjectName};
use model::pointer_config::Assessment;
use telemetry::faults;
use time::OffsetDateTime;
use tokio::time::Instant;

pub use self::external_pair::{ExternalPair, ServingPair, TrustBundle};
pub(crate) use self::names::USER_DATA;
pub use self::names::{CA, SERVING};
pub use self::observe::Observer;
pub use self::reporting::trust_snapshot::{Trust, TrustSnapshot};
pub use self::requests::administrator::AdministratorRequest;
pub use self::requests::issuer_ref::IssuerRef;
pub use self::secret::is_unused;
pub(crate) use self::settings::key_algorithms::KeyAlgorithms;
pub use self::state::ClusterState;

use self::apply::{apply_pointers, apply_write, create_request, delete_request};
use self::internal_release_image::{Decision, issuance};
pub(crate) use self::objects::{user_data_secret, user_data_write};
use self::reporting::report::Report;
pub use self::secret::{stored_pair, value};
pub use self::state::user_data;
pub use self::user_data::managed_name;
pub(crate) use self::user_data::managed_pointer;
use pki::issue::request_ca;
use pki::{
    CertificateKind, DROPPED_FIX, DROPPED_REASON, Generate, Host, IssueError, NextAction, Policy,
    RequestAction, Step, Warning, Write, next,
};

use super::retries::{Retries, WriteOutcome};
use super::runtime::Reconciler;

/// Settings of the controller.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Namespace of the Secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    pub user_data_namespace: String,
    /// Further name or address of the server. If the cluster names none, pointer configs get the first one
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    pub hosts: Vec<Host>,
    #[command(flatten)]
    certificates: CertificateFlags,
    /// cert-manager's issuer for the signing CA, instead of a self-signed one: GROUP/KIND/NAME, or
    /// Issuer/NAME in the controller's namespace, ClusterIssuer/NAME
    #[arg(long, value_name = "ISSUER", help_heading = "Certificates")]
    ca_from_issuer: Option<IssuerRef>,
    /// Source of the serving certificate: own, or external[:NAMESPACE/SECRET] for a Secret of another
    /// component, by default machine-config-server-external-tls. With external the controller issues nothing
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "own",
        help_heading = "Certificates",
        conflicts_with = "ca_from_issuer"
    )]
    serving_pair: ServingPair,
    /// CAs that machines must trust for an external certificate; KEY is ca-bundle.crt by default
    #[arg(long, value_name = "NAMESPACE/CONFIGMAP[:KEY]", help_heading = "Certificates")]
    trust_bundle: Option<TrustBundle>,
}

impl Settings {
    /// The external pair, if the flags name one.
    pub fn external(&self) -> anyhow::Result<Option<ExternalPair>> {
        match (&self.serving_pair, &self.trust_bundle) {
            (ServingPair::Own, None) => Ok(None),
            (ServingPair::External(secret), Some(trust)) => {
                Ok(Some(ExternalPair { secret: secret.clone(), trust: trust.clone() }))
            }
            (ServingPair::External(_), None) => {
                bail!("--serving-pair external needs --trust-bundle NAMESPACE/CONFIGMAP[:KEY]")
            }
            (ServingPair::Own, Some(_)) => {
                bail!("--trust-bundle needs --serving-pair external")
            }
        }
    }

    pub fn observer(&self, client: &Client) -> Observer {
        let (namespace, hosts) = (self.user_data_namespace.clone(), self.hosts.clone());
        Observer::new(client.clone(), namespace, hosts)
    }
}

pub struct CertificateController {
    client: Client,
    observer: Observer,
    policy: Policy,
    report: Report,
    health: Health,
    trust_snapshot: TrustSnapshot,
    retries: Retries,
}

impl CertificateController {
    /// Creates a controller that has not looked yet. `identity` is this process' name in events.
    pub fn new(
        observer: Observer,
        settings: Settings,
        identity: &str,
        health: Health,
        trust_snapshot: TrustSnapshot,
    ) -> Self {
        let Settings { certificates, ca_from_issuer: issuer, .. } = settings;
        let client = observer.client.clone();
        Self {
            observer: Observer { issuer, ..observer },
            policy: certificates.policy(),
            report: Report::new(client.clone(), identity),
            health,
            trust_snapshot,
            retries: Retries::default(),
            client,
        }
    }

    /// Applies the writes of a step. After a conflict, the rest waits for another look.
    async fn execute(
        &mut self,
        state: &ClusterState,
        step: &Step,
        writes: Vec<Write>,
        now: OffsetDateTime,
    ) -> Result<(), ControlError> {
        if *step == Step::Pointers {
            self.write_user_data(state, writes).await;
            return Ok(());
        }
        let before = state.ca.as_ref().map(stored_pair);
        for write in &writes {
            for what in write.dropped(before.as_ref()) {
                tracing::warn!(
                    name = CA,
                    what,
                    reason = DROPPED_REASON,
                    fix = DROPPED_FIX,
                    "removed from the CA store"
                );
            }
            match apply_write(&self.client, state, &self.policy, write).await? {
                Applied::Done => {}
                Applied::Superseded => return Ok(()),
            }
        }
        self.report.done(step).await;
        match step {
            Step::Ca(reason) => self.health.metrics.rotated("authority", reason.label(), now),
            Step::Serving(reason, _) => self.health.metrics.rotated("serving", reason.label(), now),
            Step::Store(_) | Step::Bundle(_) | Step::Pointers => {}
        }
        Ok(())
    }

    async fn write_user_data(&mut self, state: &ClusterState, writes: Vec<Write>) {
        let mut written = Vec::new();
        for (name, result) in apply_pointers(&self.client, state, &self.policy, writes).await {
            let secret = state.user_data_object(&name);
            match self.retries.note(&name, result, &self.health) {
                WriteOutcome::Written => {
                    self.health.metrics.user_data_written.inc();
                    written.push(secret);
                }
                WriteOutcome::Refused(error) => {
                    self.report.user_data_refused(&secret, &error).await;
                }
                WriteOutcome::Nothing => {}
            }
        }
        self.report.user_data_written(&written).await;
    }

    /// Signs the internal release image's pair if it is due, and requests another look. Otherwise returns the time of
    /// the next one, at `until` at the latest.
    async fn release_image(
        &mut self,
        state: &ClusterState,
        algorithms: Result<KeyAlgorithms, Malformed>,
        until: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Option<OffsetDateTime>, ControlError> {
        let decision = internal_release_image::decide(state, &self.policy, now)?;
        self.report.release_image(&decision);
        let because = match decision {
            Decision::Absent | Decision::Blocked(_) => return Ok(Some(until)),
            Decision::Current { until: own } => return Ok(Some(until.min(own))),
            Decision::Sign(because) => because,
        };
        let key = algorithms?.serving.generate()?;
        if let Ok(issuance) = issuance(state, now)?
            && let Some(pair) = issuance.sign(&self.policy, &key, now)?
        {
            let write = internal_release_image::pair_write(state, &pair)?;
            if apply(&self.client, &write).await? == Applied::Done {
                self.report.release_image_signed(because).await;
                self.health.metrics.rotated("internal-release-image", because.label(), now);
            }
        }
        Ok(None)
    }

    /// Stores or deletes the request to an issuer. Returns true if that was due.
    async fn update_request(
        &self,
        state: &ClusterState,
        request_action: &RequestAction,
        generate: Generate<'_>,
        now: OffsetDateTime,
    ) -> Result<bool, ControlError> {
        let Some(request) = &state.ca_request else { return Ok(false) };
        let write = match request_action {
            RequestAction::Nothing => return Ok(false),
            RequestAction::Ask(_) => {
                let key = generate(CertificateKind::Ca)?;
                request.write(key.serialize_pem(), request_ca(&key, now)?, now)?
            }
            RequestAction::Discard => match request.discard()? {
                Some(write) => write,
                None => return Ok(false),
            },
        };
        if apply(&self.client, &write).await? == Applied::Done
            && let RequestAction::Ask(because) = request_action
        {
            self.report.ca_requested(&request.issuer, because).await;
            if let Some((replaced, precondition)) = request.present() {
                delete_request(&self.client, replaced, precondition).await;
            }
        }
        Ok(true)
    }

    /// Applies the next write that corrects the serving pair's Secret: its type, or its note of the pair's origin. Returns
    /// true if there was one.
    async fn correct_serving_secret(&self, state: &ClusterState) -> Result<bool, ControlError> {
        if let Some((because, write)) =
            retype::plan(state.serving.as_ref(), state.serving_copy.as_ref())?
        {
            if apply(&self.client, &write).await? == Applied::Done {
                tracing::info!(object = %write.object, reason = %because, "correcting the type of the Secret");
            }
            return Ok(true);
        }
        let external = self.observer.external.as_ref();
        let Some(write) = ExternalPair::note(external, state.serving.as_ref())? else {
            return Ok(false);
        };
        apply(&self.client, &write).await?;
        Ok(true)
    }
}

impl Reconciler for CertificateController {
    const SUBJECT: &'static str = "certificates";

    fn watched(&self) -> Vec<ObjectName> {
        self.observer.watched()
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let mut state = self.observer.observe().await?;
        let failure = create_request(&self.client, &state).await;
        if let Some(request) = &mut state.ca_request {
            request.failure = failure;
        }
        if self.correct_serving_secret(&state).await? {
            return Ok(Requeue::Now);
        }
        let assessments = state.assess_user_data()?;
        // A Secret that was deleted or corrected by another party needs no retry.
        self.retries.retain(|name| matches!(assessments.get(name), Some(Assessment::Stale(_))));
        let certificates = state.certificates(&assessments, &self.retries.at(Instant::now()))?;
        self.trust_snapshot.set(&certificates);
        let now = OffsetDateTime::now_utc();
        let algorithms = state.key_algorithms(self.policy.algorithm);
        self.health.can_follow("kinds of keys", algorithms.as_ref().err());
        let generate = &mut |what| match (&algorithms, what) {
            (Ok(kinds), CertificateKind::Ca) => kinds.signer.generate(),
            (Ok(kinds), CertificateKind::Serving) => kinds.serving.generate(),
            (Err(error), _) => Err(IssueError::NoKey(error.to_string())),
        };
        let next = next(&certificates, &self.policy, now, generate)?;
        self.report.assessed_user_data(&state, &assessments).await;
        self.health
            .metrics
            .user_data_left_alone(assessments.values().filter_map(Assessment::left_alone));
        match next {
            NextAction::Settled { until, attention, request_action } => {
                if self.update_request(&state, &request_action, generate, now).await? {
                    return Ok(Requeue::Now);
                }
                let Some(until) = self.release_image(&state, algorithms, until, now).await? else {
                    return Ok(Requeue::Now);
                };
                self.report.attention(&attention).await;
                self.health.metrics.attention(&attention);
                let summary = Warning::summary(&attention);
                faults::CERTIFICATES.report(&self.health.status, summary.as_deref());
                self.health.metrics.observe(&certificates, state.newest_trusted());
                Ok(self.retries.requeue(Requeue::at(until, now), Instant::now()))
            }
            NextAction::Step { step, writes } => {
                self.execute(&state, &step, writes, now).await?;
                Ok(Requeue::Now)
            }
        }
    }
}
