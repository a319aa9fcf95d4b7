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
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

mod ca;
mod decide;
mod enrolments;
mod issuer_spec;
mod issuers;
mod listed;
mod objects;
mod policy;
mod reserved_names;
mod round;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::reconcile::Requeue;
use controllers::NAMESPACE;
use controllers::certificates::{CA, SERVING};
use controllers::object_conditions::{Condition, conditions_with, time_text};
use controllers::runtime::Reconciler;
use kube::Client;
use kube::api::DynamicObject;
use kubernetes::{ControlError, Health, ObjectName};
use model::objects::ObjectKind;
use pki::{Certificate, IssueError};
use serde_json::{Value, json};
use telemetry::faults;
use time::OffsetDateTime;
use tokio::sync::Notify;

use self::decide::{Outcome, decide};
use self::enrolments::Enrolments;
use self::issuer_spec::ISSUER_KINDS;
use self::issuers::{Issuer, IssuerReader, Signer};
use self::listed::Listed;
use self::objects::{RequestSeen, certificate_request, signing_request};
use self::round::Round;

/// Signs the requests to a cluster's issuers.
pub struct IssuerController {
    client: Client,
    health: Health,
    wake: Arc<Notify>,
    reader: IssuerReader,
    enrolments: Enrolments,
}

/// All issuers by name, or the reason why one cannot sign.
type Issuers = BTreeMap<ObjectName, Result<Issuer, String>>;

impl IssuerController {
    /// Creates a controller that has not looked yet. `namespace` is that of cluster issuers' Secrets.
    pub fn new(client: Client, namespace: String, health: Health) -> Self {
        let wake = Arc::new(Notify::new());
        let enrolments = Enrolments::new(Arc::clone(&wake));
        let reader = IssuerReader::new(client.clone(), namespace);
        Self { client, health, wake, reader, enrolments }
    }

    /// Reads all issuers, and reports in each status if it can sign.
    async fn issuers(&mut self, round: &mut Round) -> Result<Issuers, ControlError> {
        let (mut issuers, mut not_signing) = (Issuers::new(), Vec::new());
        for read in self.reader.read(round.now).await? {
            let name = &read.listed.name;
            not_signing.extend(read.issuer.as_ref().err().map(|fault| format!("{name}: {fault}")));
            let (reason, message) = match &read.issuer {
                Ok(_) => ("CanSign", "signs approved requests".to_owned()),
                Err(reason) => ("CannotSign", reason.clone()),
            };
            let is_true = read.issuer.is_ok();
            let condition = Condition { type_: "Ready", is_true, reason, message };
            if self.write_condition(&read.listed, &condition, json!({}), round).await {
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
            issuers.insert(read.listed.name, read.issuer);
        }
        faults::ISSUERS.report_all(&self.health.status, &not_signing);
        Ok(issuers)
    }

    async fn certificate_requests(
        &mut self,
        issuers: &Issuers,
        round: &mut Round,
    ) -> Result<(), ControlError> {
        for listed in Listed::all(&self.client, ObjectKind::CERTIFICATE_REQUEST).await? {
            let Listed { name, object } = &listed;
            let seen = certificate_request(&name.namespace, &object.data);
            let Some(seen) = seen.filter(|_| object.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            let now = round.now;
            let outcome = self.outcome(object, seen, issuers, now);
            let (condition, fields) = match outcome {
                Outcome::Nothing => continue,
                Outcome::Pending(message) | Outcome::InTrouble(message) => {
                    (not_ready("Pending", message), json!({}))
                }
                Outcome::Denied => {
                    let message = "denied, and therefore not signed".to_owned();
                    (not_ready("Denied", message), failed_at(now))
                }
                Outcome::Failed(message) => (not_ready("Failed", message), failed_at(now)),
                Outcome::Issued(issued, changed) => {
                    let mut fields = json!({"certificate": encoded(&issued.chain)});
                    // The API server refuses an empty value.
                    if !issued.roots.is_empty() {
                        fields["ca"] = encoded(&issued.roots).into();
                    }
                    let message = match changed {
                        None => "signed".to_owned(),
                        Some(how) => format!("signed, with differences from the request: {how}"),
                    };
                    (Condition { is_true: true, ..not_ready("Issued", message) }, fields)
                }
            };
            self.write_condition(&listed, &condition, fields, round).await;
        }
        Ok(())
    }

    /// Handles Kubernetes' requests: they have no condition for waiting, and a denied one is answered already.
    async fn signing_requests(
        &mut self,
        issuers: &Issuers,
        round: &mut Round,
    ) -> Result<(), ControlError> {
        for listed in Listed::all(&self.client, ObjectKind::CERTIFICATE_SIGNING_REQUEST).await? {
            let object = &listed.object;
            let seen = signing_request(&object.data);
            let Some(seen) = seen.filter(|_| object.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            match self.outcome(object, seen, issuers, round.now) {
                Outcome::Nothing
                | Outcome::Pending(_)
                | Outcome::InTrouble(_)
                | Outcome::Denied => {}
                Outcome::Failed(message) => {
                    let condition =
                        Condition { type_: "Failed", is_true: true, reason: "Failed", message };
                    self.write_condition(&listed, &condition, json!({}), round).await;
                }
                Outcome::Issued(issued, _) => {
                    let fields = json!({"certificate": encoded(&issued.chain)});
                    self.write(&listed, &fields, "signed", round).await;
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
        let grant = match decide(seen, known) {
            Ok(grant) => grant,
            Err(outcome) => return outcome,
        };
        let Some((name, Ok(issuer))) = found else { return Outcome::Nothing };
        match &issuer.signer {
            Signer::Ca(ca) => match ca.issue(&grant, now) {
                Ok(signed) => Outcome::Issued(Box::new(signed), None),
                // The CA may have just expired, and be replaced.
                Err(error @ IssueError::NoSigner) => Outcome::Pending(error.to_string()),
                Err(error) => Outcome::Failed(error.to_string()),
            },
            Signer::Upstream(upstream) => {
                let id = object.metadata.uid.as_deref().unwrap_or_default();
                self.enrolments.follow(id, name, upstream, grant)
            }
        }
    }

    /// Writes a condition with other fields, unless the object has it already. Returns true if it was written.
    async fn write_condition(
        &self,
        listed: &Listed,
        condition: &Condition,
        mut fields: Value,
        round: &mut Round,
    ) -> bool {
        match conditions_with(&listed.object.data, condition, round.now) {
            Ok(Some(conditions)) => {
                fields["conditions"] = conditions;
                self.write(listed, &fields, &condition.message, round).await
            }
            Ok(None) => false,
            Err(reason) => round.note(Err(listed.name.malformed(reason).into())),
        }
    }

    async fn write(
        &self,
        listed: &Listed,
        fields: &Value,
        because: &str,
        round: &mut Round,
    ) -> bool {
        let is_written = round.note(listed.write_status(&self.client, fields).await);
        if is_written {
            tracing::info!(object = %listed.name, because, "wrote the status");
        }
        is_written
    }
}

impl Reconciler for IssuerController {
    const SUBJECT: &'static str = "requests";

    fn watched(&self) -> Vec<ObjectName> {
        let requests = [ObjectKind::CERTIFICATE_REQUEST, ObjectKind::CERTIFICATE_SIGNING_REQUEST];
        let kinds = ISSUER_KINDS.into_iter().chain(requests);
        let of_server = [
            ObjectName::secret(NAMESPACE, CA),
            ObjectName::secret(NAMESPACE, SERVING),
            ObjectName::config_map(NAMESPACE, CA),
        ];
        kinds.map(|kind| ObjectName::new(kind, "", "*")).chain(of_server).collect()
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
        faults::UPSTREAM_CAS.report_all(status, &troubles);
        faults::STATUSES.counted_by(&metrics.failures).report_all(status, &round.refused);
        match round.failure.take() {
            Some(error) => Err(error),
            None => Ok(round.requeue()),
        }
    }
}

fn not_ready(reason: &'static str, message: String) -> Condition {
    Condition { type_: "Ready", is_true: false, reason, message }
}

fn failed_at(now: OffsetDateTime) -> Value {
    json!({"failureTime": time_text(now)})
}

/// Certificates as a status has them.
fn encoded(certificates: &[Certificate]) -> String {
    BASE64_STANDARD.encode(certificates.iter().map(Certificate::to_pem).collect::<String>())
}
