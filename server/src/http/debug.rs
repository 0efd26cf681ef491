//! The endpoints `/debug/` of Go programs that apply to this server (HT-11).

use std::{env, sync::Arc};

use axum::{Router, middleware, response::Response, routing::any};

use serde_json::json;

use super::{NodeInfo, json_response, only_get, text};

pub(super) fn routes(enable_pprof: bool) -> Router<Arc<NodeInfo>> {
    let vars = Router::new().route("/debug/vars", any(vars));
    let routes = if enable_pprof {
        vars.route("/debug/pprof/", any(pprof_index))
            .route("/debug/pprof/cmdline", any(pprof_command_line))
    } else {
        vars
    };
    routes.route_layer(middleware::from_fn(only_get))
}

async fn vars() -> Response {
    let command_line = json!(command_line());
    json_response(format!("{{\n\"cmdline\": {command_line}\n}}\n"))
}

/// `/debug/pprof/`: lists only the command line. The profiles of Go's runtime do not exist.
async fn pprof_index() -> Response {
    text("profiles of this process:\ncmdline\n")
}

async fn pprof_command_line() -> Response {
    text(command_line().join("\0"))
}

fn command_line() -> Vec<String> {
    let arguments = env::args_os();
    arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}
