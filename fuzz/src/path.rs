//! What a request's path gets.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode, Uri};
use machine_config_server::server::auth::Authorizer;
use machine_config_server::server::machines::router;
use machine_config_server::server::state::{MachineRoutes, SourceReads};
use machine_config_server::serving::answers::Answers;
use machine_config_server::serving::tokens::named_machines::NamedMachines;
use model::ledger::Ledger;
use percent_encoding::percent_decode_str;
use telemetry::Metrics;
use telemetry::conditions::Status;
use tokio::runtime::{Builder, Runtime};
use tower::Service as _;

use super::text;

static SERVER: LazyLock<(Runtime, Router)> = LazyLock::new(|| {
    let metrics = Arc::<Metrics>::default();
    let answers = Arc::new(Answers::new(true, Arc::clone(&metrics)));
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let router = router(Arc::new(MachineRoutes {
        answers,
        reads: SourceReads::default(),
        named: NamedMachines::default(),
        metrics,
        status: Status::default(),
        ledger: Ledger::default(),
        auth: Authorizer::default(),
        reports: None,
    }));
    (runtime, router)
});

/// Judges one input.
pub fn run(data: &[u8]) {
    let path = text(data);
    let (runtime, router) = &*SERVER;
    for path in [format!("/{path}"), format!("/config/{path}")] {
        let Ok(uri) = path.parse::<Uri>() else { continue };
        let name = uri.path().strip_prefix("/config/").map(|it| it.strip_suffix('/').unwrap_or(it));
        let name = name.and_then(|name| percent_decode_str(name).decode_utf8().ok());
        let is_pool = name.is_some_and(|name| !name.is_empty() && !name.contains('/'));
        let expected = match uri.path() {
            "/healthz" | "/livez" => StatusCode::OK,
            "/readyz" | "/readyz/serving" => StatusCode::SERVICE_UNAVAILABLE,
            // Nothing was read yet.
            _ if is_pool => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::NOT_FOUND,
        };
        let request = Request::builder().uri(uri).body(Body::empty()).expect("a request");
        let Ok(response) = runtime.block_on(router.clone().call(request));
        assert_eq!(response.status(), expected, "{path}");
    }
}
