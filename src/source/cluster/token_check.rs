//! Asks the API server whether machines can join by the bootstrap token: now and then, and at once while one has had its config
//! for a minute and has not joined.
//!
//! The token can have expired, or be of another cluster. Otherwise only the machine's kubelet sees that, on a machine that
//! nobody can log in to.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use kubernetes::client::connect_by_token;
use model::ledger::{Ledger, NodeIndex, TokenProblem};
use telemetry::conditions::Status;
use telemetry::faults;
use tokio::time::Instant;

use super::token;

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
    pub(crate) async fn follow(self, ledger: Ledger, index: NodeIndex, status: Status) {
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
            index.set_token_problem(problem);
            let reason = problem.map(|problem| problem.to_string());
            faults::BOOTSTRAP_TOKEN_REFUSED
                .with_fix(problem.map_or("", TokenProblem::remedy))
                .report(&status, reason.as_deref());
        }
    }

    /// Checks the token; `None` if that is not possible now. What is wrong with its file is reported where it is followed.
    async fn check(&self) -> Option<Result<(), TokenProblem>> {
        let token = token::read(&self.token_dir).ok()?.token;
        let client = connect_by_token(self.kubeconfig.clone(), token).await.ok()?;
        ask(client).await
    }
}

/// Asks whether the client may request a certificate, as kubelet does first of all.
async fn ask(client: Client) -> Option<Result<(), TokenProblem>> {
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
        Ok(review) => match review.status? {
            status if status.allowed => Some(Ok(())),
            // An authorizer that could not be asked denies too.
            status if status.evaluation_error.is_some() => None,
            _ => Some(Err(TokenProblem::NotAllowed)),
        },
        Err(kube::Error::Api(status)) if status.code == 401 => Some(Err(TokenProblem::Refused)),
        Err(_) => None,
    }
}
