//! Follows kubelets' requests for their first certificates, for the boot ledger: who waits for approval.
//!
//! The right to it is optional. A server without it, or of an API server without the kind, logs that once.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use kubernetes::seen::{Cause, Failure};
use kubernetes::watch::{Watch, WatchEvent};
use model::ledger::{JoinRequest, JoinRequests, NodeIndex, Verdict};
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;

/// Label in metrics.
const NAME: &str = "certificatesigningrequests";
/// Requests for certificates with which kubelets speak to the API server.
const SIGNER: &str = "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet";

/// Keeps who asks to join in `index` up to date, forever; failures are reported and counted.
pub(crate) async fn follow(client: Client, index: NodeIndex, reporting: Reporting) {
    let Reporting { metrics, status } = reporting;
    let requests = Api::<CertificateSigningRequest>::all(client);
    let mut watch = Watch::new(requests, None).with_fields(SIGNER);
    let mut listed = JoinRequests::default();
    let mut is_off = false;
    loop {
        match watch.next().await {
            WatchEvent::Seen(Event::Init) => listed = JoinRequests::default(),
            WatchEvent::Seen(Event::InitApply(request)) => {
                if let Some(request) = read(&request) {
                    listed.add(request);
                }
            }
            WatchEvent::Seen(Event::InitDone) => {
                let now = std::mem::take(&mut listed);
                index.change_joining(|joining| *joining = now);
                is_off = false;
                faults::JOIN_REQUESTS.clear(&status);
            }
            WatchEvent::Seen(Event::Apply(request)) => {
                if let Some(request) = read(&request) {
                    index.change_joining(|joining| joining.add(request));
                }
            }
            WatchEvent::Seen(Event::Delete(request)) => {
                index.change_joining(|joining| joining.remove(&request.name_any()));
            }
            WatchEvent::Failed(Failure { cause: Cause::Other, reason: error }) => {
                let failures = metrics.watch_failures(NAME);
                faults::JOIN_REQUESTS.counted_by(&failures).report(&status, Some(&error));
            }
            WatchEvent::Failed(failure) if !is_off => {
                is_off = true;
                index.change_joining(|joining| *joining = JoinRequests::default());
                faults::JOIN_REQUESTS.clear(&status);
                tracing::info!(
                    reason = failure.reason,
                    "the boot ledger does not show who waits for approval: this server cannot watch \
                     CertificateSigningRequests"
                );
            }
            WatchEvent::Works | WatchEvent::Failed(_) => {}
        }
    }
}

fn read(request: &CertificateSigningRequest) -> Option<JoinRequest> {
    let created = request.creation_timestamp()?.0.as_second();
    let created = OffsetDateTime::from_unix_timestamp(created).ok()?;
    let requester = request.spec.username.as_deref().unwrap_or_default();
    let pem = &request.spec.request.0;
    JoinRequest::read(&request.name_any(), requester, pem, created, verdict(request))
}

fn verdict(request: &CertificateSigningRequest) -> Verdict {
    let conditions = || request.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let reason = |kind: &str| {
        let condition = conditions().find(|it| it.type_ == kind)?;
        let texts = [&condition.reason, &condition.message].into_iter().flatten();
        let texts: Vec<_> = texts.map(String::as_str).filter(|text| !text.is_empty()).collect();
        Some(if texts.is_empty() { "no reason given".to_owned() } else { texts.join(": ") })
    };
    if let Some(reason) = reason("Denied") {
        return Verdict::Denied(reason);
    }
    if let Some(reason) = reason("Failed") {
        return Verdict::Failed(reason);
    }
    if conditions().any(|it| it.type_ == "Approved") { Verdict::Approved } else { Verdict::Pending }
}
