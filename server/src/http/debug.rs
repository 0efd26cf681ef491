//! `/debug/`: what a Go program shows about itself, as far as we have it (HT-11).

use std::{env, sync::Arc};

use axum::{Router, middleware, response::Response, routing::any};

use serde_json::json;

use super::{Facts, json_answer, only_get, text};

pub(super) fn routes(enable_pprof: bool) -> Router<Arc<Facts>> {
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
    json_answer(format!("{{\n\"cmdline\": {command_line}\n}}\n"))
}

/// Go's profiles are about Go's runtime; only the command line is left.
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
