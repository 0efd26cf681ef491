//! The rows of the table: loads on an API server, each with the CPU time of the server per operation.

use std::time::Duration;

use crate::BoxError;
use crate::kube::client::{Call, Connection, Version};
use crate::kube::objects::{
    CUSTOM, NAMESPACE, OBJECTS, PODS, custom, custom_path, define, metadata, name, namespace,
    object, path, pod,
};
use crate::kube::server::ApiServer;
use crate::kube::watchers::Watchers;

/// The number of requests in flight.
const IN_FLIGHT: usize = 8;

/// The number of lists of each kind.
const LISTS: u64 = 10;

/// The number of objects of a page.
const PAGE: usize = 500;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The number of operations in a row.
    pub(crate) operations: u64,
    /// The number of objects in lists.
    pub(crate) objects: u64,
    /// The number of watches of single nodes.
    pub(crate) nodes: u64,
}

/// A server with open connections.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) server: ApiServer,
    pub(crate) size: Size,
    http1: Connection,
    http2: Connection,
}

/// A value of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// A row, in the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Create(Version),
    Get(Version),
    Update,
    MergePatch,
    Apply,
    Fill,
    List,
    Page,
    ListByLabel,
    CreateCustom,
    GetCustom,
    PatchCustomStatus,
    ListCustom,
    /// An event for each of a number of watches of all objects.
    Watch(u64),
    /// An event for one watch, beside a number of others that it does not concern.
    WatchBeside(u64),
    Delete,
    DeleteCollection,
    /// Memory after the phases before.
    Memory,
    /// An event for one of the watches of single nodes.
    WatchNodes,
    /// Memory with these watches open.
    NodesMemory,
}

/// All rows.
pub(crate) const PHASES: [Phase; 23] = [
    Phase::Create(Version::Http2),
    Phase::Create(Version::Http1),
    Phase::Get(Version::Http2),
    Phase::Get(Version::Http1),
    Phase::Update,
    Phase::MergePatch,
    Phase::Apply,
    Phase::Fill,
    Phase::List,
    Phase::Page,
    Phase::ListByLabel,
    Phase::CreateCustom,
    Phase::GetCustom,
    Phase::PatchCustomStatus,
    Phase::ListCustom,
    Phase::Memory,
    Phase::Watch(100),
    Phase::WatchBeside(0),
    Phase::WatchBeside(1_000),
    Phase::Delete,
    Phase::DeleteCollection,
    Phase::WatchNodes,
    Phase::NodesMemory,
];

impl Phase {
    pub(crate) fn title(self, size: Size) -> String {
        let version = |version| match version {
            Version::Http1 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        };
        let objects = size.objects;
        match self {
            Self::Create(of) => format!("create, {}", version(of)),
            Self::Get(of) => format!("get, {}", version(of)),
            Self::Update => "update".to_owned(),
            Self::MergePatch => "merge patch".to_owned(),
            Self::Apply => "server-side apply".to_owned(),
            Self::Fill => format!("create, up to {objects} objects"),
            Self::List => format!("list of {objects} objects"),
            Self::Page => format!("page of {PAGE} objects"),
            Self::ListByLabel => format!("list by label, 10 % of {objects}"),
            Self::CreateCustom => "create of a custom resource".to_owned(),
            Self::GetCustom => "get of a custom resource".to_owned(),
            Self::PatchCustomStatus => "merge patch of the status of one".to_owned(),
            Self::ListCustom => format!("list of {} custom resources", size.operations),
            Self::Memory => format!("resident memory with {objects} objects"),
            Self::Watch(watches) => format!("event for one of {watches} watches"),
            Self::WatchBeside(others) => {
                format!("write and its event, beside {others} watches of other objects")
            }
            Self::Delete => "delete".to_owned(),
            Self::DeleteCollection => "delete of a collection, per object".to_owned(),
            Self::WatchNodes => {
                let nodes = size.nodes;
                format!("write of a pod and its event, beside {nodes} watches of single nodes")
            }
            Self::NodesMemory => format!("resident memory with these {} pods", size.nodes),
        }
    }
}

impl Session {
    pub(crate) async fn new(server: ApiServer, size: Size) -> Result<Self, BoxError> {
        let http1 = server.connect(Version::Http1).await?;
        let http2 = server.connect(Version::Http2).await?;
        let mut session = Self {
            server,
            size,
            http1,
            http2,
        };
        let namespace = namespace(NAMESPACE);
        session
            .http2
            .call(Call::create("/api/v1/namespaces", namespace))
            .await?;
        Ok(session)
    }

    /// Measures a row.
    #[expect(clippy::too_many_lines, reason = "one arm for each row")]
    pub(crate) async fn run(&mut self, phase: Phase) -> Result<Measured, BoxError> {
        let Size {
            operations,
            objects,
            nodes,
        } = self.size;
        let before = self.server.cpu_time()?;
        let per = match phase {
            Phase::Create(Version::Http2) => {
                let call = |number| Call::create(OBJECTS, object(number, 0));
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::Create(Version::Http1) => {
                let call = move |number| Call::create(OBJECTS, object(operations + number, 0));
                self.http1.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::Get(version) => {
                let connection = match version {
                    Version::Http1 => &self.http1,
                    Version::Http2 => &self.http2,
                };
                let call = |number| Call::get(path(number));
                connection.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::Update => {
                let call = |number| Call::update(path(number), object(number, 1));
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::MergePatch => {
                let call = |number| Call::merge_patch(path(number), r#"{"data":{"p":"1"}}"#);
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::Apply => {
                let call = |number| {
                    let path = path(number) + "?fieldManager=load&force=true";
                    Call::apply(path, object(number, 2))
                };
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::Fill => {
                let count = objects.saturating_sub(2 * operations);
                let call = move |number| Call::create(OBJECTS, object(2 * operations + number, 0));
                self.http2.run(IN_FLIGHT, count, call).await?;
                count
            }
            Phase::List => {
                self.http2.run(1, LISTS, |_| Call::get(OBJECTS)).await?;
                LISTS
            }
            Phase::Page => self.pages().await?,
            Phase::ListByLabel => {
                let path = format!("{OBJECTS}?labelSelector=shard%3D3");
                let call = move |_| Call::get(path.clone());
                self.http2.run(1, LISTS, call).await?;
                LISTS
            }
            Phase::CreateCustom => {
                define(&mut self.http2).await?;
                return self.create_custom().await;
            }
            Phase::GetCustom => {
                let call = |number| Call::get(custom_path(number));
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::PatchCustomStatus => {
                let call = |number| {
                    let path = custom_path(number) + "/status";
                    Call::merge_patch(path, r#"{"status":{"ok":true}}"#)
                };
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::ListCustom => {
                self.http2.run(1, LISTS, |_| Call::get(CUSTOM)).await?;
                LISTS
            }
            Phase::Watch(watches) => return self.watch(watches).await,
            Phase::WatchBeside(others) => return self.watch_beside(others).await,
            Phase::Delete => {
                let call = |number| Call::delete(path(number));
                self.http2.run(IN_FLIGHT, operations, call).await?;
                operations
            }
            Phase::DeleteCollection => {
                self.http2.call(Call::delete(OBJECTS)).await?;
                objects.saturating_sub(operations)
            }
            Phase::WatchNodes => return self.watch_nodes(nodes).await,
            Phase::Memory | Phase::NodesMemory => {
                return Ok(Measured {
                    value: self.server.resident_mebibytes()?,
                    unit: "MiB",
                });
            }
        };
        self.since(before, per)
    }

    /// Returns the CPU time of the server since `before` for each of a number of operations.
    fn since(&self, before: Duration, operations: u64) -> Result<Measured, BoxError> {
        let spent = self.server.cpu_time()?.saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let value = spent.as_secs_f64() * 1e6 / operations.max(1) as f64;
        Ok(Measured { value, unit: "µs" })
    }

    /// Reads all objects in pages, [`LISTS`] times. Returns the number of pages.
    async fn pages(&mut self) -> Result<u64, BoxError> {
        let mut pages = 0;
        for _ in 0..LISTS {
            let mut token = String::new();
            loop {
                let path = format!("{OBJECTS}?limit={PAGE}&continue={token}");
                let page = self.http2.call(Call::get(path)).await?;
                pages += 1;
                match metadata(&page, "continue") {
                    Some(next) if !next.is_empty() => token = next,
                    _ => break,
                }
            }
        }
        Ok(pages)
    }

    async fn create_custom(&self) -> Result<Measured, BoxError> {
        let operations = self.size.operations;
        let before = self.server.cpu_time()?;
        let call = |number| Call::create(CUSTOM, custom(number));
        self.http2.run(IN_FLIGHT, operations, call).await?;
        self.since(before, operations)
    }

    async fn revision(&mut self, path: &str) -> Result<String, BoxError> {
        let list = self
            .http2
            .call(Call::get(format!("{path}?limit=1")))
            .await?;
        Ok(metadata(&list, "resourceVersion").ok_or("a list without a resource version")?)
    }

    async fn watch(&mut self, watches: u64) -> Result<Measured, BoxError> {
        let events = self.size.operations / 2;
        let revision = self.revision(OBJECTS).await?;
        let path_of = |_| format!("{OBJECTS}?watch=1&resourceVersion={revision}");
        let readers = Watchers::open(&self.server, watches, path_of).await?;
        let before = self.server.cpu_time()?;
        let call = |number| Call::merge_patch(path(number), seq(number));
        self.http2.run(IN_FLIGHT / 2, events, call).await?;
        readers.wait_for(watches * events).await?;
        self.since(before, watches * events)
    }

    async fn watch_beside(&mut self, others: u64) -> Result<Measured, BoxError> {
        let events = self.size.operations / 2;
        let revision = self.revision(OBJECTS).await?;
        let path_of = |number| {
            let name = if number == 0 {
                name(0)
            } else {
                format!("none-{number}")
            };
            format!(
                "{OBJECTS}?watch=1&resourceVersion={revision}&fieldSelector=metadata.name%3D{name}"
            )
        };
        let watchers = Watchers::open(&self.server, others + 1, path_of).await?;
        let before = self.server.cpu_time()?;
        let call = move |number| Call::merge_patch(path(0), seq(number + others * events + 1));
        self.http2.run(1, events, call).await?;
        watchers.wait_for(events).await?;
        self.since(before, events)
    }

    async fn watch_nodes(&mut self, nodes: u64) -> Result<Measured, BoxError> {
        let call = |number| Call::create(PODS, pod(number));
        self.http2.run(IN_FLIGHT, nodes, call).await?;
        let revision = self.revision(PODS).await?;
        let path_of = |number| {
            format!(
                "/api/v1/pods?watch=1&resourceVersion={revision}&fieldSelector=spec.nodeName%3Dnode-{number}"
            )
        };
        let watchers = Watchers::open(&self.server, nodes, path_of).await?;
        eprintln!(
            "{}: {nodes} watches open, {:.0} MiB",
            self.server.name,
            self.server.resident_mebibytes()?
        );
        let before = self.server.cpu_time()?;
        let call = |number| {
            let path = format!("{PODS}/pod-{number}");
            Call::merge_patch(path, r#"{"metadata":{"labels":{"seen":"1"}}}"#)
        };
        self.http2.run(IN_FLIGHT, nodes, call).await?;
        watchers.wait_for(nodes).await?;
        let measured = self.since(before, nodes)?;
        eprintln!(
            "{}: all events received, {:.0} MiB",
            self.server.name,
            self.server.resident_mebibytes()?
        );
        Ok(measured)
    }
}

fn seq(number: u64) -> String {
    format!(r#"{{"data":{{"seq":"{number}"}}}}"#)
}
