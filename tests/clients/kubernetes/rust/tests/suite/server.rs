//! Processes of the server under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Client, Config};
use serde_json::json;

/// The time limit of a wait, after which the test fails. It is long enough for busy machines.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A server that ends with its value.
pub struct Server {
    process: Child,
    /// The address of the store over etcd's API.
    etcd: String,
    kubeconfig: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub fn start(flags: &[&str]) -> Self {
        let mut process = Command::new(std::env::var("APISERVER").expect("the variable APISERVER"))
            .args([
                "--secure-port=0",
                "--controllers=none",
                "--etcd-listen-url=http://127.0.0.1:0",
            ])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut ready = BufReader::new(process.stdout.take().unwrap());
        let etcd = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "no etcd's API");
            if let Some((_, url)) = line.split_once("etcd's API on http://") {
                break url.trim().to_owned();
            }
        };
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let mut line = String::new();
        ready.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "ready", _, kubeconfig] = words[..] else {
            panic!("the server did not start: {line:?}");
        };
        let kubeconfig = kubeconfig.to_owned();
        Self {
            process,
            etcd,
            kubeconfig,
        }
    }

    /// Returns the configuration of the kubeconfig that the server has written.
    pub async fn config(&self) -> Config {
        let file = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .unwrap()
    }

    pub async fn client(&self) -> Client {
        Client::try_from(self.config().await).unwrap()
    }

    /// Returns a client whose requests are changed by a function.
    pub async fn client_with(
        &self,
        change: impl Fn(&mut Request) + Clone + Send + Sync + 'static,
    ) -> Client {
        let layer = tower::util::MapRequestLayer::new(move |mut request: Request| {
            change(&mut request);
            request
        });
        let builder = ClientBuilder::try_from(self.config().await).unwrap();
        builder.with_layer(&layer).build()
    }

    /// Removes the history of the store before the version of a list, which it returns.
    pub async fn compact(&self) -> String {
        let maps: Api<ConfigMap> = Api::all(self.client().await);
        let list = maps.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let body = json!({"revision": version, "physical": true}).to_string();
        let mut stream = TcpStream::connect(&self.etcd).unwrap();
        write!(
            stream,
            "POST /v3/kv/compaction HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        version
    }
}

/// A request of a client.
type Request = http::Request<kube::client::Body>;

pub fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "test"}},
        "data": {"color": "blue"},
    }))
    .unwrap()
}

pub async fn create_maps(maps: &Api<ConfigMap>, names: &[&str]) {
    for name in names {
        maps.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
}

/// Returns the status of an error.
#[track_caller]
pub fn status<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("no status: {other:?}"),
    }
}

/// Ends a future that does not end by itself with an error.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("the end of a wait")
}
