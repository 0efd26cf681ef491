//! A server with a port of control.

use revstore_apiserver::{ApiServer, ApiServerBuilder, ClockMode, ControlConfig, ListenUrl};
use serde_json::{Value, json};

use crate::client::exchange::{answer, exchange, exchange_with_host};
use crate::client::{send, value};

/// A server with a port of control on which a test sends requests.
pub(crate) struct Fixture {
    pub(crate) server: ApiServer,
    url: String,
}

impl Fixture {
    /// Starts a server whose clock has this mode.
    pub(crate) fn new(clock: ClockMode) -> Self {
        Self::with(clock, |builder| builder)
    }

    /// Starts a server with further options.
    pub(crate) fn with(
        clock: ClockMode,
        options: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder,
    ) -> Self {
        let mut control = ControlConfig::from(clock);
        control.listen_url = Some(ListenUrl::localhost(0));
        let builder = options(ApiServer::builder().control(control));
        let server = builder.start().expect("the server starts");
        let url = server.control_endpoint().expect("a port").to_owned();
        Self { server, url }
    }

    /// Sends a request of control, and returns the status and the answer.
    pub(crate) fn control(&self, method: &str, body: &Value) -> (u16, Value) {
        let path = format!("/control/v1/{method}");
        let address = self.url.trim_start_matches("http://");
        let fields = "Content-Type: application/json\r\n";
        let body = body.to_string();
        // The port refuses other hosts than those of the loopback interface.
        value(&exchange_with_host(address, "POST", &path, fields, &body))
    }

    /// Sends a request of control that succeeds.
    pub(crate) fn ok(&self, method: &str, body: &Value) -> Value {
        let (status, answer) = self.control(method, body);
        assert_eq!(status, 200, "{method}: {answer}");
        answer
    }

    /// Sends a request to the front.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        value(&send(&self.server, method, path, body))
    }

    /// Sends a GET with header fields.
    pub(crate) fn get_with(&self, path: &str, fields: &str) -> (u16, Value) {
        value(&exchange(self.server.endpoint(), "GET", path, fields, ""))
    }

    /// Sends a GET, and returns the answer with its header.
    pub(crate) fn head_of(&self, path: &str) -> String {
        answer(self.server.endpoint(), "GET", path, "", "")
    }

    /// Writes a config map, and returns its resource version.
    pub(crate) fn put(&self, name: &str, text: &str) -> i64 {
        let object = json!({"metadata": {"name": name}, "data": {"text": text}});
        let path = format!("{MAPS}/{name}");
        let (mut status, mut written) = self.send("PUT", &path, &object.to_string());
        if status == 404 {
            (status, written) = self.send("POST", MAPS, &object.to_string());
        }
        assert!([200, 201].contains(&status), "{written}");
        version(&written)
    }
}

/// The collection of config maps of the default namespace.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns the resource version of an object or list.
pub(crate) fn version(object: &Value) -> i64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no version in {object}"))
}

/// Returns the names in a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list").iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap_or_default())
        .collect()
}
