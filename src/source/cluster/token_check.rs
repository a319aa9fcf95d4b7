//! Asks the API server whether machines can join by the bootstrap token: now and then, and at once while one has had its config
//! for a minute and has not joined.
//!
//! The token can have expired, or be of another cluster. Otherwise only the machine's kubelet sees that, on a machine that
//! nobody can log in to.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use model::ledger::{Ledger, NodeIndex};
use tokio::time::Instant;

use super::token;
use crate::kubernetes::client::connect_by_token;
use crate::telemetry::conditions::{Condition, Conditions};

/// Interval between checks while a machine is about to join, or none can.
const SHORT: Duration = Duration::from_secs(5);
/// Interval between checks otherwise. The machine can have its config from another server.
const LONG: Duration = Duration::from_secs(120);

/// Where the API server and the token are.
#[derive(Debug, Clone)]
pub(crate) struct TokenCheck {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) token_dir: PathBuf,
}

impl TokenCheck {
    /// Checks the token, forever, more often while a machine of `ledger` is about to join. Its problem is reported, and shown
    /// with such machines by `index`.
    pub(crate) async fn follow(self, ledger: Ledger, index: NodeIndex, degraded: Conditions) {
        let mut due = Instant::now() + LONG;
        loop {
            tokio::time::sleep(SHORT).await;
            let now = SystemTime::now().into();
            let is_awaited = index.look(|nodes| ledger.awaits_join(nodes, now));
            if !is_awaited && !index.has_token_problem() && Instant::now() < due {
                continue;
            }
            due = Instant::now() + LONG;
            let Some(verdict) = self.check().await else { continue };
            let problem = verdict.err();
            index.set_token_problem(problem.clone());
            let condition = Condition::new("bootstrap token at the API server", problem);
            condition.report(&degraded, |reason| {
                if let Some(reason) = reason {
                    tracing::error!(
                        reason,
                        fix = "make the Secret of the token again; machines that have their configs already must be \
                               booted again",
                        "machines cannot join by the bootstrap token"
                    );
                } else {
                    tracing::info!("machines can join by the bootstrap token");
                }
            });
        }
    }

    /// The problem of the token; `None` if it is not known whether there is one.
    async fn check(&self) -> Option<Result<(), String>> {
        let token = read(&self.token_dir)?;
        let client = connect_by_token(self.kubeconfig.clone(), token).await.ok()?;
        ask(client).await
    }
}

/// The token. What is wrong with its file is reported where it is followed.
fn read(directory: &Path) -> Option<String> {
    token::read(directory).ok().map(|token| token.token)
}

/// Asks whether the client may request a certificate, as kubelet does first of all.
async fn ask(client: Client) -> Option<Result<(), String>> {
    let attributes = ResourceAttributes {
        verb: Some("create".to_owned()),
        group: Some("certificates.k8s.io".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    match Api::all(client).create(&PostParams::default(), &review).await {
        Ok(review) if review.status.as_ref().is_some_and(|status| status.allowed) => Some(Ok(())),
        Ok(_) => Some(Err("the account of the bootstrap token that machines get must not create \
                           CertificateSigningRequests"
            .to_owned())),
        Err(kube::Error::Api(status)) if status.code == 401 => {
            Some(Err("the API server refuses the bootstrap token that machines get: Unauthorized"
                .to_owned()))
        }
        Err(_) => None,
    }
}
