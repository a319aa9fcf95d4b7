//! An external issuer for cert-manager, and a signer of Kubernetes' own requests.
//!
//! ```text
//!  issuers ───────> issuer_spec ─────> policy ─┐
//!  CertificateRequest ────> objects ───────────┼─> decide ─> who signs ─> status of the request
//!  CertificateSigningRequest                   │
//!  secrets ─> authority, upstream ─────────────┘
//!                           └─> enrolments, over CMPv2
//! ```
//!
//! Only approved requests are signed, and only if the issuer's policy covers them. Only statuses are written, each of
//! the object and version that was read. `reserved` are the names that no pattern covers, and `round` collects the
//! failures of one look.

mod ca;
mod decide;
mod enrolments;
mod issuer_spec;
mod issuers;
mod kinds;
mod objects;
mod policy;
mod reserved_names;
mod round;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use pki::{Certificate, IssueError, Issued};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use tokio::sync::Notify;

use self::decide::{Decision, decide};
use self::enrolments::{Enrolments, Progress};
use self::issuer_spec::{IssuerKind, IssuerName};
use self::issuers::{Issuer, IssuerReader, Signer};
use self::kinds::{Kind, certificate_requests, issuers_of, signing_requests};
use self::objects::{RequestSeen, bytes, certificate_request, signing_request, status};
use self::policy::Grant;
use self::round::Round;
use super::NAMESPACE;
use super::certificates::{CA, SERVING};
use super::object_conditions::{Condition, conditions_with, time_text};
use super::runtime::{self, Reconciler, Requeue, Watched};
use crate::kubernetes::ControlError;
use crate::kubernetes::Health;
use crate::kubernetes::write::ObjectName;
use crate::telemetry::conditions;

/// Signs the requests to a cluster's issuers.
pub(crate) struct IssuerController {
    client: Client,
    health: Health,
    wake: Arc<Notify>,
    reader: IssuerReader,
    enrolments: Enrolments,
}

/// All issuers by name, or the reason why one cannot sign.
type Issuers = BTreeMap<IssuerName, Result<Issuer, String>>;

impl IssuerController {
    /// Creates a controller that has not looked yet. `namespace` is that of cluster issuers' Secrets.
    pub(crate) fn new(client: Client, namespace: String, health: Health) -> Self {
        let wake = Arc::new(Notify::new());
        let enrolments = Enrolments::new(Arc::clone(&wake));
        let reader = IssuerReader::new(client.clone(), namespace);
        Self { client, health, wake, reader, enrolments }
    }

    /// Runs forever. Returns the error that ended it.
    pub(crate) async fn run(self) -> ControlError {
        let (client, health) = (self.client.clone(), self.health.clone());
        runtime::run(self, &client, &health).await
    }

    /// Reads all issuers, and reports in each status if it can sign.
    async fn issuers(&mut self, round: &mut Round) -> Result<Issuers, ControlError> {
        let mut issuers = Issuers::new();
        for read in self.reader.read(round.now).await? {
            let name = read.name;
            let condition = Condition {
                type_: "Ready",
                is_true: read.issuer.is_ok(),
                reason: if read.issuer.is_ok() { "CanSign" } else { "CannotSign" },
                message: match &read.issuer {
                    Ok(_) => "signs approved requests".to_owned(),
                    Err(reason) => reason.clone(),
                },
            };
            let kind = issuers_of(name.kind);
            let target = Target { kind: &kind, object: &read.object };
            if self.write_condition(target, &condition, Map::new(), round).await {
                match &read.issuer {
                    Ok(_) => tracing::info!(issuer = %name, "issuer can sign"),
                    Err(reason) => {
                        tracing::warn!(
                            issuer = %name,
                            reason,
                            fix = "correct the issuer or the Secret that the reason names",
                            "issuer cannot sign"
                        );
                    }
                }
            }
            round.waits_for_secret |= read.waits_for_secret;
            issuers.insert(name, read.issuer);
        }
        let faults = issuers
            .iter()
            .filter_map(|(name, issuer)| Some(format!("{name}: {}", issuer.as_ref().err()?)));
        let condition = conditions::Condition::of_all("issuers", &faults.collect::<Vec<_>>());
        condition.note(&self.health.status.degraded);
        Ok(issuers)
    }

    async fn certificate_requests(
        &mut self,
        issuers: &Issuers,
        round: &mut Round,
    ) -> Result<(), ControlError> {
        let kind = certificate_requests();
        for object in kind.list(&self.client).await? {
            let namespace = object.namespace().unwrap_or_default();
            let seen = certificate_request(&namespace, &object.data);
            let Some(seen) = seen.filter(|_| object.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            let now = round.now;
            let outcome = self.outcome(&object, seen, issuers, now);
            let (condition, fields) = match outcome {
                Outcome::Nothing => continue,
                Outcome::Pending(message) => (not_ready("Pending", message), Map::new()),
                Outcome::Denied => {
                    let message = "denied, and therefore not signed".to_owned();
                    (not_ready("Denied", message), failed_at(now))
                }
                Outcome::Failed(message) => (not_ready("Failed", message), failed_at(now)),
                Outcome::Issued(issued, changed) => {
                    let mut fields = status([("certificate", bytes(&pem(&issued.chain)))]);
                    // The API server refuses an empty value.
                    if !issued.roots.is_empty() {
                        fields.insert("ca".to_owned(), bytes(&pem(&issued.roots)));
                    }
                    let message = match changed {
                        None => "signed".to_owned(),
                        Some(how) => format!("signed, with differences from the request: {how}"),
                    };
                    (Condition { is_true: true, ..not_ready("Issued", message) }, fields)
                }
            };
            let target = Target { kind: &kind, object: &object };
            self.write_condition(target, &condition, fields, round).await;
        }
        Ok(())
    }

    /// Handles Kubernetes' requests: they have no condition for waiting, and a denied one is answered already.
    async fn signing_requests(
        &mut self,
        issuers: &Issuers,
        round: &mut Round,
    ) -> Result<(), ControlError> {
        let kind = signing_requests();
        for object in kind.list(&self.client).await? {
            let seen = signing_request(&object.data);
            let Some(seen) = seen.filter(|_| object.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            let target = Target { kind: &kind, object: &object };
            match self.outcome(&object, seen, issuers, round.now) {
                Outcome::Nothing | Outcome::Pending(_) | Outcome::Denied => {}
                Outcome::Failed(message) => {
                    let condition =
                        Condition { type_: "Failed", is_true: true, reason: "Failed", message };
                    self.write_condition(target, &condition, Map::new(), round).await;
                }
                Outcome::Issued(issued, _) => {
                    let fields = status([("certificate", bytes(&pem(&issued.chain)))]);
                    self.write(target, fields, "signed", round).await;
                }
            }
        }
        Ok(())
    }

    /// The outcome of a request, which is forwarded if an external CA signs it.
    fn outcome(
        &mut self,
        object: &DynamicObject,
        seen: RequestSeen,
        issuers: &Issuers,
        now: OffsetDateTime,
    ) -> Outcome {
        let found = issuers.get_key_value(&seen.issuer);
        let known = found.map(|(_, issuer)| match issuer {
            Ok(issuer) => Ok((&issuer.policy, &issuer.reserved)),
            Err(reason) => Err(reason.as_str()),
        });
        let grant: Box<Grant> = match decide(seen, known) {
            Decision::Leave => return Outcome::Nothing,
            Decision::Pending(message) => return Outcome::Pending(message),
            Decision::Denied => return Outcome::Denied,
            Decision::Failed(message) => return Outcome::Failed(message),
            Decision::Sign(grant) => grant,
        };
        let Some((name, Ok(issuer))) = found else { return Outcome::Nothing };
        match &issuer.signer {
            Signer::Ca(ca) => match ca.issue(&grant, now) {
                Ok(signed) => Outcome::Issued(signed, None),
                // The CA may have just expired, and be replaced.
                Err(error @ IssueError::NoSigner) => Outcome::Pending(error.to_string()),
                Err(error) => Outcome::Failed(error.to_string()),
            },
            Signer::Upstream(upstream) => {
                let id = object.metadata.uid.as_deref().unwrap_or_default();
                match self.enrolments.follow(id, name, upstream, *grant) {
                    Progress::Pending(message) | Progress::InTrouble(message) => {
                        Outcome::Pending(message)
                    }
                    Progress::Failed(message) => Outcome::Failed(message),
                    Progress::Issued(signed, changed) => Outcome::Issued(*signed, changed),
                }
            }
        }
    }

    /// Writes a condition with other fields, unless the object has it already. Returns true if it was written.
    async fn write_condition(
        &self,
        target: Target<'_>,
        condition: &Condition,
        mut fields: Map<String, Value>,
        round: &mut Round,
    ) -> bool {
        match conditions_with(&target.object.data, condition, round.now) {
            Ok(Some(conditions)) => {
                fields.insert("conditions".to_owned(), conditions);
                self.write(target, fields, &condition.message, round).await
            }
            Ok(None) => false,
            Err(reason) => round.note(Err(target.name().malformed(reason).into())),
        }
    }

    async fn write(
        &self,
        target: Target<'_>,
        fields: Map<String, Value>,
        because: &str,
        round: &mut Round,
    ) -> bool {
        let result = target.kind.write_status(&self.client, target.object, fields).await;
        let is_written = round.note(result);
        if is_written {
            tracing::info!(object = %target.name(), because, "wrote the status");
        }
        is_written
    }
}

impl Reconciler for IssuerController {
    const SUBJECT: &'static str = "requests";

    fn watched(&self) -> Vec<Watched> {
        let secret = |name| Watched::core::<Secret>(ObjectName::secret(NAMESPACE, name));
        let requests = [certificate_requests(), signing_requests()];
        let kinds = IssuerKind::ALL.map(issuers_of).into_iter().chain(requests);
        let kinds =
            kinds.map(|kind| Watched::custom(ObjectName::new(kind.name, "", "*"), kind.resource));
        let bundle = Watched::core::<ConfigMap>(ObjectName::config_map(NAMESPACE, CA));
        kinds.chain([secret(CA), secret(SERVING), bundle]).collect()
    }

    fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let mut round = Round::new(OffsetDateTime::now_utc());
        let issuers = self.issuers(&mut round).await?;
        self.certificate_requests(&issuers, &mut round).await?;
        self.signing_requests(&issuers, &mut round).await?;
        let troubles = self.enrolments.end_round();
        // The fault may be in a Secret.
        round.waits_for_secret |= !troubles.is_empty();
        let Health { status, metrics } = &self.health;
        conditions::Condition::of_all("upstream CAs", &troubles).report_failure(
            &status.degraded,
            |news| {
                tracing::warn!(
                    reason = news,
                    fix = "check the upstream CA; requests are sent again",
                    "requests wait for an upstream CA"
                );
            },
        );
        conditions::Condition::of_all("statuses", &round.refused)
            .counted_by(&metrics.failures)
            .report_failure(&status.degraded, |news| {
                tracing::error!(
                    reason = news,
                    fix = "correct what the API server refuses; the requests are tried again",
                    "cannot write the status of requests"
                );
            });
        match round.failure.take() {
            Some(error) => Err(error),
            None => Ok(round.requeue()),
        }
    }
}

/// Object whose status is written.
#[derive(Clone, Copy)]
struct Target<'a> {
    kind: &'a Kind,
    object: &'a DynamicObject,
}

impl Target<'_> {
    fn name(self) -> ObjectName {
        self.kind.object(self.object)
    }
}

enum Outcome {
    Nothing,
    Pending(String),
    Denied,
    Failed(String),
    /// Issued, with a description of changes by the external CA.
    Issued(Issued, Option<String>),
}

fn not_ready(reason: &'static str, message: String) -> Condition {
    Condition { type_: "Ready", is_true: false, reason, message }
}

fn failed_at(now: OffsetDateTime) -> Map<String, Value> {
    status([("failureTime", json!(time_text(now)))])
}

fn pem(certificates: &[Certificate]) -> String {
    certificates.iter().map(Certificate::to_pem).collect()
}
