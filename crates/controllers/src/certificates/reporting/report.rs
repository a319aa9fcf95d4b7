//! Reports the state of certificates in the log and by events.

use std::collections::BTreeMap;

use kube::Client;
use kube::runtime::events::EventType;
use kubernetes::events::Events;
use kubernetes::write::ObjectName;
use model::pointer_config::{Assessment, LeftAlone};
use pki::{CertificateKind, Reason, Step, Warning};
use telemetry::{listed, log_attention};

use crate::NAMESPACE;
use crate::certificates::internal_release_image::{self, Blocker, Decision};
use crate::certificates::names::{CA, SERVING};
use crate::certificates::requests::issuer_ref::IssuerRef;
use crate::certificates::state::ClusterState;

/// Reports changes, and remembers what was reported.
pub(in crate::certificates) struct Report {
    events: Events,
    /// Secrets that are not edited, with the reported reason.
    left_alone: BTreeMap<String, LeftAlone>,
    /// Reported warnings about the certificates.
    attention: Vec<Warning>,
    /// Reported reason why the internal release image's pair is not signed.
    blocked: Option<Blocker>,
}

impl Report {
    pub(in crate::certificates) fn new(client: Client, identity: &str) -> Self {
        Self {
            events: Events::new(client, identity),
            left_alone: BTreeMap::new(),
            attention: Vec::new(),
            blocked: None,
        }
    }

    /// Reports once for each Secret why it is not edited: an event for each, and a log line for each reason.
    pub(in crate::certificates) async fn assessed_user_data(
        &mut self,
        state: &ClusterState,
        assessments: &BTreeMap<String, Assessment>,
    ) {
        let left_alone = assessments
            .iter()
            .filter_map(|(name, assessment)| Some((name.clone(), assessment.left_alone()?)));
        let reported = std::mem::replace(&mut self.left_alone, left_alone.collect());
        let mut by_reason: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for (name, reason) in &self.left_alone {
            if reported.get(name) == Some(reason) {
                continue;
            }
            by_reason.entry(reason.to_string()).or_default().push(name);
            let note = format!("user data is not updated: {reason}");
            let object = state.user_data_object(name);
            self.events.publish(EventType::Warning, "left-alone", &object, &note).await;
        }
        for (reason, names) in by_reason {
            tracing::warn!(
                secrets = names.len(),
                names = listed(&names),
                reason,
                fix = "give the machines user data that the controller can update",
                "does not update user data"
            );
        }
    }

    /// Reports each warning once.
    pub(in crate::certificates) async fn attention(&mut self, attention: &[Warning]) {
        let reported = std::mem::replace(&mut self.attention, attention.to_vec());
        for attention in self.attention.iter().filter(|attention| !reported.contains(attention)) {
            let note = attention.to_string();
            log_attention(attention, attention.object(CA, SERVING));
            let name = match attention {
                Warning::Ca(_) | Warning::ClockBehind { .. } | Warning::Issuer { .. } => CA,
                Warning::Refused(refused) if refused.what == CertificateKind::Ca => CA,
                _ => SERVING,
            };
            let object = ObjectName::secret(NAMESPACE, name);
            self.events.publish(EventType::Warning, attention.label(), &object, &note).await;
        }
    }

    pub(in crate::certificates) async fn done(&self, step: &Step) {
        let (name, reason, done) = match step {
            Step::Ca(reason) => {
                tracing::info!(name = CA, reason = reason.label(), because = %reason, "made a signing CA");
                (CA, reason, "made a signing CA")
            }
            Step::Serving(reason, _) => {
                tracing::info!(
                    name = SERVING, reason = reason.label(), because = %reason,
                    "issued a serving certificate"
                );
                (SERVING, reason, "issued a serving certificate")
            }
            Step::Store(reason) => {
                tracing::info!(
                    name = CA, reason = reason.label(), because = %reason,
                    "rewrote the CA store"
                );
                (CA, reason, "rewrote the CA store")
            }
            Step::Bundle(_) => {
                tracing::info!("wrote the trust bundle");
                return;
            }
            // Each Secret is reported separately.
            Step::Pointers => return,
        };
        let note = format!("{done}: {reason}");
        let object = ObjectName::secret(NAMESPACE, name);
        self.events.publish(EventType::Normal, reason.label(), &object, &note).await;
    }

    pub(in crate::certificates) async fn ca_requested(&self, issuer: &IssuerRef, because: &Reason) {
        let note = format!("requested a signing CA from {issuer}: {because}");
        tracing::info!(%issuer, reason = because.label(), %because, "requested a signing CA");
        let object = ObjectName::secret(NAMESPACE, CA);
        self.events.publish(EventType::Normal, because.label(), &object, &note).await;
    }

    /// Reports once why the internal release image's pair is not signed.
    pub(in crate::certificates) fn release_image(&mut self, decision: &Decision) {
        let blocked = match decision {
            Decision::Blocked(blocked) => Some(*blocked),
            Decision::Absent | Decision::Current { .. } | Decision::Sign(_) => None,
        };
        if let Some(reason) = blocked
            && self.blocked != blocked
        {
            let object = internal_release_image::object();
            tracing::warn!(
                %object,
                %reason,
                fix = reason.fix(),
                "cannot renew the serving certificate of the internal release image"
            );
        }
        self.blocked = blocked;
    }

    pub(in crate::certificates) async fn release_image_signed(
        &self,
        because: internal_release_image::Reason,
    ) {
        let object = internal_release_image::object();
        let note =
            format!("issued a serving certificate for the internal release image: {because}");
        tracing::info!(
            %object, reason = because.label(), %because,
            "issued a serving certificate for the internal release image"
        );
        self.events.publish(EventType::Normal, because.label(), &object, &note).await;
    }

    /// Reports user data that was written: a log line for all, and an event for each Secret.
    pub(in crate::certificates) async fn user_data_written(&self, secrets: &[ObjectName]) {
        if secrets.is_empty() {
            return;
        }
        let names: Vec<_> = secrets.iter().map(|secret| &secret.name).collect();
        tracing::info!(
            secrets = names.len(),
            names = listed(&names),
            "wrote the trust bundle into user data"
        );
        let note = "wrote the trust bundle into the user data";
        for secret in secrets {
            self.events.publish(EventType::Normal, "bundle", secret, note).await;
        }
    }

    pub(in crate::certificates) async fn user_data_refused(
        &self,
        secret: &ObjectName,
        reason: &str,
    ) {
        tracing::error!(
            secret = secret.name,
            reason,
            fix = "correct what the API server refuses; machines that use this Secret keep the older CAs",
            "cannot write user data"
        );
        let note = format!("cannot write the user data: {reason}");
        self.events.publish(EventType::Warning, "refused", secret, &note).await;
    }
}
